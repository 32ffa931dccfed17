#include "store/dump_meta.h"

#include <limits>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "store/part_image.h"

namespace varve::store {
namespace {

using Json = nlohmann::json;

Status Bad(const std::string& message) { return InvalidArgument("dump meta: " + message); }

Status GetInt(const Json& object, const char* key, int64_t low, int64_t high, int64_t& value) {
  const auto found = object.find(key);
  if (found == object.end()) return Bad(fmt::format("{} is missing", key));
  if (!found->is_number_integer()) return Bad(fmt::format("{} is not an integer", key));
  const bool huge = found->is_number_unsigned() &&
                    found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  value = huge ? std::numeric_limits<int64_t>::max() : found->get<int64_t>();
  if (value >= low && value <= high) return Status();
  return Bad(fmt::format("{} {} is not in {} … {}", key, value, low, high));
}

Status GetText(const Json& object, const char* key, bool required, std::string& value) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return required ? Bad(fmt::format("{} is missing", key)) : Status();
  }
  if (!found->is_string()) return Bad(fmt::format("{} is not a string", key));
  value = found->get<std::string>();
  if (value.size() <= 4096) return Status();
  return Bad(fmt::format("{} of {} bytes > 4096", key, value.size()));
}

// The last component: dumps that were moved still name the folder in which they were made.
Status GetFile(const Json& object, const char* key, std::string& name) {
  VARVE_RETURN_IF_ERROR(GetText(object, key, true, name));
  const size_t slash = name.find_last_of("/\\");
  if (slash != std::string::npos) name.erase(0, slash + 1);
  const bool bad =
      name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos;
  return bad ? Bad(fmt::format("{} is no file name", key)) : Status();
}

}  // namespace

Result<DumpMeta> ParseDumpMeta(std::string_view json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Bad("not a JSON object");
  DumpMeta meta;
  VARVE_RETURN_IF_ERROR(GetText(object, "stage", false, meta.stage));
  VARVE_RETURN_IF_ERROR(GetText(object, "run_id", false, meta.run_id));
  int64_t layer = 0, heads = 0, dim = 0, bytes = 0;
  VARVE_RETURN_IF_ERROR(GetInt(object, "layer_id", 0, 65535, layer));
  VARVE_RETURN_IF_ERROR(GetInt(object, "seq_start", 0, int64_t{1} << 40, meta.seq_start));
  VARVE_RETURN_IF_ERROR(GetInt(object, "seq_len", 1, int64_t{1} << 31, meta.seq_len));
  VARVE_RETURN_IF_ERROR(GetInt(object, "kv_heads", 1, kMaxPartHeads, heads));
  VARVE_RETURN_IF_ERROR(GetInt(object, "head_dim", 1, kMaxPartDim, dim));
  VARVE_RETURN_IF_ERROR(GetInt(object, "bytes_per_elem", 2, 4, bytes));
  if (bytes == 3) return Bad("bytes_per_elem 3 is neither 2 nor 4");
  meta.layer_id = static_cast<int>(layer);
  meta.kv_heads = static_cast<int>(heads);
  meta.head_dim = static_cast<int>(dim);
  meta.bytes_per_elem = static_cast<int>(bytes);
  meta.dtype = bytes == 2 ? "f16" : "f32";
  VARVE_RETURN_IF_ERROR(GetText(object, "dtype", false, meta.dtype));
  const bool two = meta.dtype == "f16" || meta.dtype == "bf16";
  if ((!two && meta.dtype != "f32") || two != (bytes == 2)) {
    return Bad(fmt::format("dtype \"{}\" does not have {} bytes", meta.dtype, bytes));
  }
  VARVE_RETURN_IF_ERROR(GetFile(object, "k_file", meta.k_file));
  VARVE_RETURN_IF_ERROR(GetFile(object, "v_file", meta.v_file));
  return meta;
}

std::string FormatDumpMeta(const DumpMeta& meta) {
  const nlohmann::ordered_json object = {
      {"stage", meta.stage},       {"run_id", meta.run_id},
      {"layer_id", meta.layer_id}, {"seq_start", meta.seq_start},
      {"seq_len", meta.seq_len},   {"kv_heads", meta.kv_heads},
      {"head_dim", meta.head_dim}, {"bytes_per_elem", meta.bytes_per_elem},
      {"dtype", meta.dtype},       {"k_file", meta.k_file},
      {"v_file", meta.v_file}};
  // Text that is no UTF-8 must not throw.
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace varve::store
