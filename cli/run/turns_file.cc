#include "cli/run/turns_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/model_argument.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxReplyTokens = 1 << 16;

Result<ScriptedTalk> ReadTalk(const std::string& path, const Json& object) {
  const auto fail = [&](std::string_view what) {
    return InvalidArgument(fmt::format("--turns \"{}\": {}", path, what));
  };
  if (!object.is_object()) return fail("must be a list of conversations");
  const Json turns = object.value("turns", Json::array());
  const Json name = object.value("name", Json("conversation"));
  if (!turns.is_array() || turns.empty()) return fail("\"turns\" must be a list of texts");
  if (!name.is_string()) return fail("\"name\" must be a text");
  ScriptedTalk talk;
  talk.name = name.get<std::string>();
  if (object.contains("reply_tokens")) {
    const Json& asked = object["reply_tokens"];
    talk.reply_tokens = asked.is_number_integer() ? asked.get<int64_t>() : 0;
    if (talk.reply_tokens < 1 || talk.reply_tokens > kMaxReplyTokens) {
      return fail(fmt::format("reply_tokens {}: not in 1 … {}", asked.dump(), kMaxReplyTokens));
    }
  }
  for (const Json& turn : turns) {
    if (!turn.is_string() || turn.get<std::string>().empty()) return fail("a turn must be a text");
    talk.turns.push_back(turn.get<std::string>());
  }
  return talk;
}

}  // namespace

Result<std::vector<ScriptedTalk>> ReadTurnsFile(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array() || json.empty()) {
    return InvalidArgument(fmt::format("--turns \"{}\": is no list of conversations", path));
  }
  std::vector<ScriptedTalk> talks;
  for (const Json& object : json) {
    VARVE_ASSIGN_OR_RETURN(ScriptedTalk talk, ReadTalk(path, object));
    talks.push_back(std::move(talk));
  }
  return talks;
}

}  // namespace varve::cli
