#include "cli/inspect/read_time.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/read_bandwidth.h"
#include "cli/report/output.h"
#include "varve/executor.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPasses = 5;

// Peaks as vendors publish them: transfers per second x 8 bytes x channels for DDR (JEDEC JESD79-4,
// JESD79-5); Apple's technical specifications of each chip; NVIDIA's and AMD's data sheets of each
// board (SXM or OAM form where there are several). A good kernel reaches 80 to 90 % of them.
const std::vector<ReadDevice>& DeviceTable() {
  static const std::vector<ReadDevice> devices = {
      {"ddr4", "DDR4-3200, two channels", 51.2e9},
      {"ddr5", "DDR5-5600, two channels", 89.6e9},
      {"epyc-9004", "DDR5-4800, twelve channels", 460.8e9},
      {"m2", "Apple M2", 100e9},
      {"m4-pro", "Apple M4 Pro", 273e9},
      {"m4-max", "Apple M4 Max, 40 GPU cores", 546e9},
      {"rtx-3090", "NVIDIA GeForce RTX 3090", 936e9},
      {"rtx-4090", "NVIDIA GeForce RTX 4090", 1008e9},
      {"rtx-5090", "NVIDIA GeForce RTX 5090", 1792e9},
      {"a100", "NVIDIA A100, 80 GB", 2039e9},
      {"h100", "NVIDIA H100, 80 GB", 3350e9},
      {"h200", "NVIDIA H200", 4800e9},
      {"mi300x", "AMD Instinct MI300X", 5300e9},
  };
  return devices;
}

ReadDevice MeasureThisDevice() {
  const std::unique_ptr<Executor> executor = MakeThreadPool(0);
  ReadBandwidth read(
      std::max<uint64_t>(DescribeMachine().last_level_cache_bytes * 9 / 4, uint64_t{128} << 20));
  read.Measure(*executor);  // warm up
  std::vector<double> passes;
  for (int i = 0; i < kPasses; ++i) passes.push_back(read.Measure(*executor));
  return {std::string(kThisDevice), fmt::format("measured, {} threads", executor->num_threads()),
          Median(passes)};
}

double MicrosecondsOf(uint64_t bytes, const ReadDevice& device) {
  return static_cast<double>(bytes) / device.bytes_per_s * 1e6;
}

double TokensPerSecond(const ReadBytes& bytes, const ReadDevice& device) {
  return device.bytes_per_s /
         static_cast<double>(std::max<uint64_t>(1, bytes.cache + bytes.weights));
}

std::string HumanTime(double us) {
  if (us >= 1e3) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.1f} us", us);
}

}  // namespace

std::span<const ReadDevice> NamedDevices() { return DeviceTable(); }

Result<std::vector<ReadDevice>> ResolveDevices(std::span<const std::string> names) {
  std::vector<ReadDevice> devices;
  std::string known(kThisDevice);
  for (const ReadDevice& device : DeviceTable()) known += " " + device.name;
  for (const std::string& name : names) {
    if (name == kThisDevice || name == "all") devices.push_back(MeasureThisDevice());
    bool is_found = name == kThisDevice;
    for (const ReadDevice& device : DeviceTable()) {
      if (name != device.name && name != "all") continue;
      devices.push_back(device);
      is_found = true;
    }
    if (!is_found) {
      return NotFound(fmt::format("--device \"{}\": there are {}, or all", name, known));
    }
  }
  return devices;
}

void PrintReadTimes(const ReadBytes& bytes, std::span<const ReadDevice> devices, std::FILE* out) {
  if (devices.empty()) return;
  const bool has_weights = bytes.weights > 0;
  fmt::print(out, "\nreading per token: {} of cache (f16: {}){}\n",
             HumanBytes(static_cast<double>(bytes.cache)),
             HumanBytes(static_cast<double>(bytes.cache_f16)),
             has_weights
                 ? fmt::format(", {} of weights", HumanBytes(static_cast<double>(bytes.weights)))
                 : "; -m NAME adds the weights");
  std::vector<std::string> headers = {"device", ">GB/s", ">cache", ">f16 cache"};
  if (has_weights) headers.insert(headers.end(), {">weights", ">tokens/s at most"});
  headers.emplace_back("");
  TextTable table(headers);
  for (const ReadDevice& device : devices) {
    std::vector<std::string> cells = {device.name, fmt::format("{:.1f}", device.bytes_per_s / 1e9),
                                      HumanTime(MicrosecondsOf(bytes.cache, device)),
                                      HumanTime(MicrosecondsOf(bytes.cache_f16, device))};
    if (has_weights) {
      cells.push_back(HumanTime(MicrosecondsOf(bytes.weights, device)));
      cells.push_back(fmt::format("{:.1f}", TokensPerSecond(bytes, device)));
    }
    cells.push_back(device.what);
    table.AddRow(std::move(cells));
  }
  table.Print(out);
}

Json ReadTimesJson(const ReadBytes& bytes, std::span<const ReadDevice> devices) {
  Json rows = Json::array();
  for (const ReadDevice& device : devices) {
    Json row = {{"device", device.name},
                {"gbps", device.bytes_per_s / 1e9},
                {"cache_us", MicrosecondsOf(bytes.cache, device)},
                {"cache_f16_us", MicrosecondsOf(bytes.cache_f16, device)},
                {"weights_us", nullptr},
                {"tokens_per_s", nullptr}};
    if (bytes.weights > 0) {
      row["weights_us"] = MicrosecondsOf(bytes.weights, device);
      row["tokens_per_s"] = TokensPerSecond(bytes, device);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace varve::cli
