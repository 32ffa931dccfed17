#include "cli/gate/gate_case.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxBucketTokens = 1 << 20;

struct GateOpName {
  const char* key;
  const char* text;
  GateOp op;
};
constexpr GateOpName kGateOps[] = {{"min", ">=", GateOp::kMin},
                                   {"max", "<=", GateOp::kMax},
                                   {"above", ">", GateOp::kAbove},
                                   {"equal", "=", GateOp::kEqual}};

Status GateCaseError(const GateFile& file, std::string_view message) {
  return InvalidArgument(fmt::format("case \"{}\": {}", file.name, message));
}

Status CheckGateKeys(const GateFile& file, const Json& object,
                     const std::set<std::string_view>& known) {
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key)) return GateCaseError(file, fmt::format("unknown key \"{}\"", key));
  }
  return Status();
}

Result<std::string> GateText(const GateFile& file, const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string() || at->get<std::string>().empty()) {
    return GateCaseError(file, fmt::format("\"{}\" must be a text", key));
  }
  return at->get<std::string>();
}

Result<std::map<std::string, double>> LimitByModel(const GateFile& file, const Json& value) {
  if (value.is_number()) return std::map<std::string, double>{{"*", value.get<double>()}};
  std::map<std::string, double> limits;
  if (value.is_object()) {
    for (const auto& [model, limit] : value.items()) {
      if (!limit.is_number()) return GateCaseError(file, "a limit must be a number");
      limits[model] = limit.get<double>();
    }
  }
  if (limits.empty()) {
    return GateCaseError(file, "a limit must be a number, or an object of numbers by model");
  }
  return limits;
}

Result<GateLimit> ParseGateLimit(const GateFile& file, const Json& object) {
  if (!object.is_object()) return GateCaseError(file, "\"gates\" must hold objects");
  VARVE_RETURN_IF_ERROR(
      CheckGateKeys(file, object, {"figure", "bucket", "min", "max", "above", "equal"}));
  GateLimit limit;
  VARVE_ASSIGN_OR_RETURN(limit.figure, GateText(file, object, "figure"));
  if (object.contains("bucket")) {
    VARVE_ASSIGN_OR_RETURN(limit.bucket, GateText(file, object, "bucket"));
  }
  int ops = 0;
  for (const GateOpName& name : kGateOps) {
    if (!object.contains(name.key)) continue;
    ++ops;
    limit.op = name.op;
    VARVE_ASSIGN_OR_RETURN(limit.by_model, LimitByModel(file, object[name.key]));
  }
  if (ops == 1) return limit;
  return GateCaseError(
      file, fmt::format("gate \"{}\" has {} limits; it needs one of min, max, above, equal",
                        limit.figure, ops));
}

Status ReadGatePlan(const GateFile& file, const Json& value, GateCase* result) {
  if (!value.is_string() && !value.is_object()) {
    return GateCaseError(file, "\"plan\" must be a text, or an object as in @file.json");
  }
  result->plan_text = value.is_string() ? value.get<std::string>() : value.dump();
  Result<Plan> plan =
      value.is_string() ? ParsePlan(result->plan_text) : ParsePlanJson(result->plan_text);
  if (!plan.ok()) return GateCaseError(file, plan.status().message());
  result->plan = std::move(*plan);
  const Status supported = CheckSupported(result->plan);
  return supported.ok() ? supported : GateCaseError(file, supported.message());
}

Status ReadGateLists(const GateFile& file, const Json& object, GateCase* result) {
  for (const char* key : {"buckets", "gates", "metrics"}) {
    if (object.contains(key) && !object[key].is_array()) {
      return GateCaseError(file, fmt::format("\"{}\" must be a list", key));
    }
  }
  for (const Json& bucket : object.value("buckets", Json::array())) {
    const int64_t tokens = bucket.is_number_integer() ? bucket.get<int64_t>() : 0;
    if (tokens < 1 || tokens > kMaxBucketTokens) {
      return GateCaseError(
          file, fmt::format("bucket {}: not in 1 … {} tokens", bucket.dump(), kMaxBucketTokens));
    }
    result->buckets.push_back(tokens);
  }
  if (result->buckets.empty()) return GateCaseError(file, "\"buckets\" must not be empty");
  std::ranges::sort(result->buckets);
  for (const Json& gate : object.value("gates", Json::array())) {
    VARVE_ASSIGN_OR_RETURN(GateLimit limit, ParseGateLimit(file, gate));
    result->gates.push_back(std::move(limit));
  }
  for (const Json& metric : object.value("metrics", Json::array())) {
    if (!metric.is_string()) return GateCaseError(file, "\"metrics\" must hold names");
    result->metrics.push_back(metric.get<std::string>());
  }
  return Status();
}

}  // namespace

const char* GateOpText(GateOp op) {
  for (const GateOpName& name : kGateOps) {
    if (name.op == op) return name.text;
  }
  return "?";
}

std::optional<double> GateLimit::For(const std::string& model) const {
  auto at = by_model.find(model);
  if (at == by_model.end()) at = by_model.find("*");
  return at == by_model.end() ? std::nullopt : std::optional<double>(at->second);
}

bool GateCase::Wants(const std::string& bucket) const {
  return std::ranges::any_of(buckets, [&](int64_t b) { return std::to_string(b) == bucket; });
}

Result<GateCase> ParseGateCase(const GateFile& file) {
  const Json object = Json::parse(file.text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return GateCaseError(file, "is no JSON object");
  VARVE_RETURN_IF_ERROR(
      CheckGateKeys(file, object, {"name", "purpose", "plan", "buckets", "gates", "metrics"}));
  GateCase result;
  result.file = file.name;
  VARVE_ASSIGN_OR_RETURN(result.name, GateText(file, object, "name"));
  VARVE_ASSIGN_OR_RETURN(result.purpose, GateText(file, object, "purpose"));
  VARVE_RETURN_IF_ERROR(ReadGatePlan(file, object.value("plan", Json()), &result));
  VARVE_RETURN_IF_ERROR(ReadGateLists(file, object, &result));
  return result;
}

Result<std::vector<GateCase>> LoadGateCases(const std::string& folder,
                                            const std::vector<std::string>& names) {
  std::vector<GateFile> files = EmbeddedGateFiles();
  std::erase_if(files, [](const GateFile& file) { return file.name.starts_with("prompts/"); });
  if (!folder.empty()) {
    VARVE_ASSIGN_OR_RETURN(files, ReadGateFolder(folder));
  }
  std::vector<GateCase> cases;
  std::set<std::string> seen;
  for (const GateFile& file : files) {
    VARVE_ASSIGN_OR_RETURN(GateCase parsed, ParseGateCase(file));
    if (!seen.insert(parsed.name).second) {
      return GateCaseError(file, fmt::format("name \"{}\": another case has it", parsed.name));
    }
    if (names.empty() || std::ranges::find(names, parsed.name) != names.end()) {
      cases.push_back(std::move(parsed));
    }
  }
  for (const std::string& name : names) {
    if (seen.contains(name)) continue;
    return NotFound(
        fmt::format("--case {}: no such case; there are {}", name, fmt::join(seen, " ")));
  }
  return cases;
}

}  // namespace varve::cli
