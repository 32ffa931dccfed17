// How long reading takes: a decode step reads the cache and the weights once, and on most devices
// that is what it waits for. So bytes over bandwidth is the least time of a token, whatever the
// kernels do. For `varve plan`. Named devices have the peak of their data sheet; "here" is
// measured.

#ifndef VARVE_CLI_INSPECT_READ_TIME_H_
#define VARVE_CLI_INSPECT_READ_TIME_H_

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

inline constexpr std::string_view kThisDevice = "here";

struct ReadDevice {
  std::string name;
  std::string what;
  double bytes_per_s = 0;
};

std::span<const ReadDevice> NamedDevices();

// The devices that the names mean: of the table, "here" (measured now, on all cores; takes up to a
// second), or "all" of them. kNotFound says which names there are.
Result<std::vector<ReadDevice>> ResolveDevices(std::span<const std::string> names);

// What one decode step reads.
struct ReadBytes {
  uint64_t cache = 0;
  uint64_t cache_f16 = 0;
  uint64_t weights = 0;  // 0: not known
};

void PrintReadTimes(const ReadBytes& bytes, std::span<const ReadDevice> devices, std::FILE* out);
// [{device, gbps, cache_us, cache_f16_us, weights_us, tokens_per_s}]; weights_us and tokens_per_s
// (at most) are null where the weights are not known.
nlohmann::ordered_json ReadTimesJson(const ReadBytes& bytes, std::span<const ReadDevice> devices);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_READ_TIME_H_
