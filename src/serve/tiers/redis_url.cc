#include "serve/tiers/redis_url.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace varve::serve {
namespace {

constexpr size_t kMaxPrefixBytes = 64;

Status Bad(const std::string& what) { return InvalidArgument("Redis URL: " + what); }

// What is before `mark`, which goes with it; nothing if it is not there.
std::optional<std::string_view> TakeUntil(std::string_view* text, char mark) {
  const size_t at = text->find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text->substr(0, at);
  text->remove_prefix(at + 1);
  return before;
}

template <typename Number>
Status ReadNumber(const char* field, std::string_view text, Number lowest, Number highest,
                  Number* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc() && stop == end && *value >= lowest && *value <= highest) return Status();
  return Bad(fmt::format("{} \"{}\" is not a number in {} … {}", field, text, lowest, highest));
}

Result<std::string> Unescape(const char* field, std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    unsigned int byte = 0;
    const char* begin = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(begin, begin + 2, byte, 16).ptr != begin + 2)
      return Bad(fmt::format("{}: % is not followed by two hexadecimal digits", field));
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

Status ReadOption(std::string_view option, RedisOptions* options) {
  const std::optional<std::string_view> name = TakeUntil(&option, '=');
  if (!name) return Bad(fmt::format("option \"{}\" has no value", option));
  if (*name == "ttl")
    return ReadNumber<int64_t>("ttl", option, 0, 1'000'000'000, &options->ttl_seconds);
  if (*name == "db") return ReadNumber("db", option, 0, 1'000'000, &options->database);
  if (*name == "timeout") {
    int64_t milliseconds = 0;
    VARVE_RETURN_IF_ERROR(ReadNumber<int64_t>("timeout", option, 1, 600'000, &milliseconds));
    options->timeout = std::chrono::milliseconds(milliseconds);
    return Status();
  }
  if (*name != "prefix") {
    return Bad(fmt::format("option \"{}\" is not known; known: db prefix timeout ttl", *name));
  }
  // Braces would be taken for the hash tag of a Cluster.
  if (option.size() > kMaxPrefixBytes || option.find_first_of("{}") != std::string_view::npos) {
    return Bad(
        fmt::format("prefix \"{}\": at most {} bytes, and no braces", option, kMaxPrefixBytes));
  }
  options->prefix = option;
  return Status();
}

Status ReadUser(std::string_view text, RedisOptions* options) {
  const std::optional<std::string_view> user = TakeUntil(&text, ':');
  if (!user) return Bad("in front of @ there is no colon: [USER]:PASSWORD@");
  VARVE_ASSIGN_OR_RETURN(options->user, Unescape("user", *user));
  VARVE_ASSIGN_OR_RETURN(options->password, Unescape("password", text));
  return Status();
}

Status ReadHost(std::string_view text, RedisOptions* options) {
  std::string_view database;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    database = text.substr(slash + 1);
    text = text.substr(0, slash);
  }
  if (!database.empty())
    VARVE_RETURN_IF_ERROR(ReadNumber("database", database, 0, 1'000'000, &options->database));
  // An IPv6 address stands in brackets.
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (has_port) {
    VARVE_RETURN_IF_ERROR(ReadNumber("port", text.substr(colon + 1), 1, 65535, &options->port));
    text = text.substr(0, colon);
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  options->host = text;
  return options->host.empty() ? Bad("no host") : Status();
}

}  // namespace

std::string RedisOptions::Name() const {
  return host.empty() ? path : fmt::format("{}:{}", host, port);
}

Result<RedisOptions> ParseRedisUrl(std::string_view url) {
  RedisOptions options;
  const bool is_socket = url.starts_with("unix://");
  if (url.starts_with("rediss://"))
    return Unimplemented("Redis URL: rediss:// (TLS) is not spoken");
  if (!is_socket && !url.starts_with("redis://"))
    return Bad("does not begin with redis:// or unix://");
  url.remove_prefix(is_socket ? 7 : 8);
  std::string_view rest;
  if (const size_t mark = url.find('?'); mark != std::string_view::npos) {
    rest = url.substr(mark + 1);
    url = url.substr(0, mark);
  }
  while (!rest.empty()) {
    const std::string_view option = TakeUntil(&rest, '&').value_or(rest);
    if (option.data() + option.size() == rest.data() + rest.size()) rest = {};
    VARVE_RETURN_IF_ERROR(ReadOption(option, &options));
  }
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    VARVE_RETURN_IF_ERROR(ReadUser(url.substr(0, at), &options));
    url.remove_prefix(at + 1);
  }
  if (!is_socket) {
    VARVE_RETURN_IF_ERROR(ReadHost(url, &options));
    return options;
  }
  options.path = url;
  if (!options.path.starts_with('/')) return Bad("unix:// needs an absolute path");
  return options;
}

}  // namespace varve::serve
