// The schema of summary.json: which fields there are, and of which type.
// docs/format/gate-summary.md says what they mean.

#include <string_view>

#include <fmt/format.h>

#include "cli/gate/gate_summary.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// b: true or false, n: number, t: text, o: object, a: list; behind ?: or null.
struct SchemaField {
  const char* name;
  const char* type;
};

constexpr SchemaField kTop[] = {{"kind", "t"},        {"schema", "n"},   {"overall_pass", "b"},
                                {"interrupted", "b"}, {"command", "t"},  {"version", "t"},
                                {"date", "t"},        {"seconds", "n"},  {"machine", "o"},
                                {"model", "o"},       {"settings", "o"}, {"prompts", "a"},
                                {"counts", "o"},      {"cases", "a"},    {"frontier", "a"},
                                {"speed", "a"},       {"runs", "a"},     {"spread", "a"}};
constexpr SchemaField kCase[] = {
    {"name", "t"},    {"purpose", "t"}, {"plan", "t"},    {"plan_canonical", "t"}, {"status", "t"},
    {"reason", "t"},  {"gates", "a"},   {"buckets", "a"}, {"quality", "?o"},       {"metrics", "o"},
    {"memory", "?o"}, {"spans", "?o"},  {"lossless", "a"}};
constexpr SchemaField kGate[] = {{"gate", "t"},   {"bucket", "t"}, {"value", "?n"},
                                 {"op", "t"},     {"limit", "n"},  {"unit", "t"},
                                 {"noise", "?n"}, {"status", "t"}, {"reason", "t"}};
constexpr SchemaField kBucket[] = {{"bucket", "t"},
                                   {"prompts", "n"},
                                   {"depth", "n"},
                                   {"end_tokens", "n"},
                                   {"idle", "t"},
                                   {"tokens_per_s", "?n"},
                                   {"baseline_tokens_per_s", "?n"},
                                   {"speed_ratio", "?n"},
                                   {"drop", "?n"},
                                   {"noise", "?n"},
                                   {"rounds", "n"},
                                   {"cache_bytes", "?n"},
                                   {"baseline_bytes", "?n"},
                                   {"cache_ratio", "?n"},
                                   {"lossy_ratio", "?n"},
                                   {"keep_ratio", "?n"},
                                   {"lossless_ratio", "?n"},
                                   {"consistency", "?b"}};
constexpr SchemaField kMemory[] = {
    {"bucket", "t"}, {"prompt_tokens", "n"}, {"series", "a"}, {"samples", "a"}};
constexpr SchemaField kSpans[] = {{"bucket", "t"},
                                  {"prompt_tokens", "n"},
                                  {"end_tokens", "n"},
                                  {"page_tokens", "n"},
                                  {"layers", "a"}};
constexpr SchemaField kFrontier[] = {
    {"case", "t"},  {"plan", "t"},         {"bytes_per_token", "n"},
    {"ratio", "n"}, {"kl_mean", "?n"},     {"kl_sem", "?n"},
    {"top1", "?n"}, {"recall_hits", "?n"}, {"recall_asked", "?n"}};
constexpr SchemaField kSpeed[] = {{"case", "t"},  {"plan", "t"},         {"bucket", "t"},
                                  {"depth", "n"}, {"tokens_per_s", "n"}, {"speed_ratio", "n"},
                                  {"noise", "n"}};
constexpr SchemaField kPrompt[] = {{"name", "t"},  {"bucket", "t"}, {"tokens", "n"}, {"turns", "n"},
                                   {"bytes", "n"}, {"hash", "t"},   {"source", "t"}};

bool HasType(const Json& value, std::string_view type) {
  if (type[0] == '?') return value.is_null() || HasType(value, type.substr(1));
  switch (type[0]) {
    case 'b':
      return value.is_boolean();
    case 'n':
      return value.is_number();
    case 't':
      return value.is_string();
    case 'o':
      return value.is_object();
    default:
      return value.is_array();
  }
}

template <size_t kSize>
Status CheckFields(const Json& object, const SchemaField (&fields)[kSize], std::string_view where) {
  for (const SchemaField& field : fields) {
    const auto at = object.find(field.name);
    if (at == object.end() || !HasType(*at, field.type)) {
      return Internal(fmt::format("summary: {}{} is missing or of another type than {}", where,
                                  field.name, field.type));
    }
  }
  return Status();
}

template <size_t kSize>
Status CheckList(const Json& list, const SchemaField (&fields)[kSize], const std::string& where) {
  for (size_t i = 0; i < list.size(); ++i) {
    VARVE_RETURN_IF_ERROR(CheckFields(list[i], fields, fmt::format("{}[{}].", where, i)));
  }
  return Status();
}

}  // namespace

Status CheckGateSummary(const Json& summary) {
  VARVE_RETURN_IF_ERROR(CheckFields(summary, kTop, ""));
  VARVE_RETURN_IF_ERROR(CheckList(summary["prompts"], kPrompt, "prompts"));
  VARVE_RETURN_IF_ERROR(CheckList(summary["cases"], kCase, "cases"));
  VARVE_RETURN_IF_ERROR(CheckList(summary["frontier"], kFrontier, "frontier"));
  VARVE_RETURN_IF_ERROR(CheckList(summary["speed"], kSpeed, "speed"));
  for (const Json& row : summary["cases"]) {
    const std::string name = "case " + row["name"].get<std::string>();
    VARVE_RETURN_IF_ERROR(CheckList(row["gates"], kGate, name + ", gates"));
    VARVE_RETURN_IF_ERROR(CheckList(row["buckets"], kBucket, name + ", buckets"));
    if (row["memory"].is_object()) {
      VARVE_RETURN_IF_ERROR(CheckFields(row["memory"], kMemory, name + ", memory."));
    }
    if (row["spans"].is_object()) {
      VARVE_RETURN_IF_ERROR(CheckFields(row["spans"], kSpans, name + ", spans."));
    }
  }
  return Status();
}

}  // namespace varve::cli
