#include "cli/inspect/inspect_cache_file.h"

#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "base/quoted.h"
#include "cli/inspect/model_lists.h"
#include "cli/report/output.h"
#include "file/cache_file_format.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

double Quotient(uint64_t of, uint64_t to) {
  return to == 0 ? 0 : static_cast<double>(of) / static_cast<double>(to);
}

// What stands for the rows: pages, and the dictionaries without which they are nothing.
uint64_t StoredBytes(const CacheFileInfo& info) { return info.page_bytes + info.dictionary_bytes; }

}  // namespace

bool IsCacheFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return false;
  std::array<char, kCacheFileMagic.size()> begin = {};
  return std::fread(begin.data(), 1, begin.size(), file.get()) == begin.size() &&
         begin == kCacheFileMagic;
}

std::string RenderCacheFile(const std::string& path, const CacheFileInfo& info, bool colour) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}  {}\n", label, value);
  };
  const CacheShape& shape = info.shape;
  line("file", path);
  line("format", fmt::format(".varve {}", info.version));
  line("size", HumanBytes(static_cast<double>(info.file_bytes)));
  line("model", info.model_fingerprint == 0 && info.model_name.empty()
                    ? "?"
                    : fmt::format("{}, fingerprint {:016x}", Printable(info.model_name, 100),
                                  info.model_fingerprint));
  line("plan", info.plan_text);
  line("shape", fmt::format("{} layers, {} KV heads of {}/{}, {} query heads each, pages of {}",
                            shape.num_layers, shape.num_kv_heads, shape.key_dim, shape.value_dim,
                            shape.group_size, shape.page_tokens));
  for (const CacheFileInfo::Sequence& sequence : info.sequences) {
    line("sequence",
         fmt::format("{} tokens, {:.0f} alive a layer, {} token ids", sequence.tokens_seen,
                     Quotient(static_cast<uint64_t>(sequence.live_rows),
                              static_cast<uint64_t>(shape.num_layers)),
                     sequence.num_tokens));
  }
  line("pages", fmt::format("{}, {} of them shared, {}", info.pages, info.pages_shared,
                            HumanBytes(static_cast<double>(info.page_bytes))));
  if (info.dictionaries > 0) {
    line("dictionaries", fmt::format("{}, {}", info.dictionaries,
                                     HumanBytes(static_cast<double>(info.dictionary_bytes))));
  }
  if (info.page_bytes > 0) {
    line("ratio", fmt::format("{} (all tokens seen / pages); {:.2f} with tables and alignment",
                              SizeAgainstF16(Quotient(info.bytes_f16_seen, StoredBytes(info))),
                              Quotient(info.bytes_f16_seen, info.file_bytes)));
  }
  if (info.rungs.empty()) return text;
  TextTable table({"rung", "state", ">pages", ">bytes"});
  for (const RungBytes& rung : info.rungs) {
    table.AddRow({rung.rung, PageStateName(rung.state), fmt::format("{}", rung.pages),
                  HumanBytes(static_cast<double>(rung.bytes))});
  }
  return text + "\n" + table.Render(colour);
}

Json CacheFileJson(const std::string& path, const CacheFileInfo& info) {
  const CacheShape& shape = info.shape;
  Json row = {{"topic", "varve"},
              {"file", path},
              {"version", info.version},
              {"file_bytes", info.file_bytes},
              {"model", Printable(info.model_name, 1024)},
              {"model_fingerprint", fmt::format("{:016x}", info.model_fingerprint)},
              {"plan", info.plan_text},
              {"num_layers", shape.num_layers},
              {"num_kv_heads", shape.num_kv_heads},
              {"group_size", shape.group_size},
              {"key_dim", shape.key_dim},
              {"value_dim", shape.value_dim},
              {"page_tokens", shape.page_tokens},
              {"pages", info.pages},
              {"pages_shared", info.pages_shared},
              {"page_bytes", info.page_bytes},
              {"dictionaries", info.dictionaries},
              {"dictionary_bytes", info.dictionary_bytes},
              {"bytes_f16", info.bytes_f16},
              {"bytes_f16_seen", info.bytes_f16_seen},
              {"ratio", Quotient(info.bytes_f16_seen, StoredBytes(info))}};
  row["sequences"] = Json::array();
  for (const CacheFileInfo::Sequence& sequence : info.sequences) {
    row["sequences"].push_back({{"next_position", sequence.next_position},
                                {"tokens_seen", sequence.tokens_seen},
                                {"live_rows", sequence.live_rows},
                                {"tokens", sequence.num_tokens}});
  }
  row["rungs"] = Json::array();
  for (const RungBytes& rung : info.rungs) {
    row["rungs"].push_back({{"rung", rung.rung},
                            {"state", PageStateName(rung.state)},
                            {"pages", rung.pages},
                            {"bytes", rung.bytes}});
  }
  return row;
}

int InspectCacheFile(const std::string& path, const std::string& json) {
  Result<CacheFileInfo> info = ReadCacheFileInfo(path);
  if (!info.ok()) return ReportError(info.status());
  if (json != "-") {
    const std::string text = RenderCacheFile(path, *info, UseColour(stdout));
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  const Status verified = VerifyCacheFile(path);
  if (verified.ok() && json != "-") fmt::print("\nevery checksum is right\n");
  Json row = CacheFileJson(path, *info);
  row["intact"] = verified.ok();
  if (!verified.ok()) row["error"] = verified.message();
  const Status written =
      json.empty() ? Status() : WriteJson(json, "inspect", Json::array({std::move(row)}));
  if (!verified.ok()) return ReportError(verified);
  return written.ok() ? kExitDone : ReportError(written);
}

}  // namespace varve::cli
