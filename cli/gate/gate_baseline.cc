#include "cli/gate/gate_baseline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/bench/bench_report.h"
#include "cli/gate/gate_summary.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "kernels/content_hash.h"
#include "kernels/kernels.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// Text at `key`, or "" where there is none.
std::string TextAt(const Json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// The f16 rows of "speed": tokens/s by bucket.
std::map<std::string, double> BaselineRows(const Json& document) {
  std::map<std::string, double> speeds;
  const Json rows = document.value("speed", Json::array());
  for (const Json& row : rows) {
    if (TextAt(row, "case") != kBaselineName) continue;
    const Json value = row.value("tokens_per_s", Json());
    if (value.is_number()) speeds[TextAt(row, "bucket")] = value.get<double>();
  }
  return speeds;
}

// The middle, and how far the values lie apart around it.
FixedSpeed MedianSpeed(const std::vector<double>& values) {
  FixedSpeed speed;
  speed.tokens_per_s = Median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - speed.tokens_per_s));
  speed.noise = 2 * Median(deviations) / speed.tokens_per_s;
  return speed;
}

}  // namespace

std::string MachineFingerprint() {
  const MachineInfo machine = DescribeMachine();
  const std::string text = fmt::format("{}|{}|{}|{}", machine.cpu, machine.cores,
                                       ActiveKernels().name, machine.last_level_cache_bytes);
  return fmt::format("{:016x}", HashBytes(text.data(), text.size()));
}

Result<GateBaseline> ReadBaselineFile(const std::string& path, const GatePlace& place) {
  VARVE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto fail = [&](const std::string& what) {
    return InvalidArgument(fmt::format("--baseline \"{}\": {}", path, what));
  };
  if (!document.is_object()) return fail("is no summary of varve gate");
  const std::string machine = TextAt(document.value("machine", Json()), "fingerprint");
  const std::string model = TextAt(document.value("model", Json()), "fingerprint");
  if (machine != place.machine) {
    return fail(fmt::format("is of machine {}, this is {}", machine, place.machine));
  }
  if (model != place.model) {
    return fail(fmt::format("is of model {}, this is {}", model, place.model));
  }
  GateBaseline baseline;
  baseline.said = fmt::format("file {}", path);
  for (const auto& [bucket, speed] : BaselineRows(document)) {
    baseline.speeds[bucket] = {speed, 0};
  }
  if (baseline.speeds.empty()) return fail("has no speed of the baseline");
  return baseline;
}

Result<GateBaseline> ReadHistory(const std::string& path, const GatePlace& place, int runs) {
  GateBaseline baseline;
  std::vector<std::map<std::string, double>> found;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    VARVE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
    size_t number = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const Json line =
          Json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
      ++number;
      if (!line.is_object()) {
        return InvalidArgument(
            fmt::format("--history \"{}\": line {} is no JSON object", path, number));
      }
      begin = end + 1;
      const bool is_here =
          TextAt(line, "machine") == place.machine && TextAt(line, "model") == place.model;
      if (is_here) found.push_back(BaselineRows(line));
    }
  }
  const size_t count = std::min(found.size(), static_cast<size_t>(runs));
  if (count < kMinHistoryRuns) {
    baseline.said =
        fmt::format("same run (history {} has {} of {} runs)", path, found.size(), kMinHistoryRuns);
    return baseline;
  }
  std::map<std::string, std::vector<double>> values;
  for (auto run = found.end() - static_cast<ptrdiff_t>(count); run != found.end(); ++run) {
    for (const auto& [bucket, speed] : *run) values[bucket].push_back(speed);
  }
  for (const auto& [bucket, speeds] : values) baseline.speeds[bucket] = MedianSpeed(speeds);
  baseline.said = fmt::format("history {}, {} runs", path, count);
  return baseline;
}

Status AppendHistory(const std::string& path, const GatePlace& place, const Json& summary) {
  const Json line = {{"date", summary.value("date", "")},
                     {"version", summary.value("version", "")},
                     {"machine", place.machine},
                     {"model", place.model},
                     {"overall_pass", summary.value("overall_pass", false)},
                     {"speed", summary.value("speed", Json::array())}};
  // Whole, so that a disk that is full leaves the old lines and no half of a new one.
  std::string text;
  if (std::filesystem::exists(path)) {
    VARVE_ASSIGN_OR_RETURN(text, ReadTextFile(path));
  }
  return WriteText(path, text + line.dump() + "\n");
}

}  // namespace varve::cli
