#include "base/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>

namespace varve {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// x86 says "model name"; ARM kernels name only the implementer, or nothing.
std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name") && !line.starts_with("CPU implementer")) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

uint64_t LastLevelCacheBytes() {
  uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    if (FirstLine(folder + "type") == "Instruction") continue;
    largest = std::max(largest, ParseCacheSize(FirstLine(folder + "size")));
  }
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (largest == 0) {
    largest = static_cast<uint64_t>(
        std::max({0L, sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE)}));
  }
#endif
  return largest;
}

uint64_t PageBytes() { return static_cast<uint64_t>(std::max(0L, sysconf(_SC_PAGESIZE))); }

}  // namespace

uint64_t ParseCacheSize(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return 0;
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  const int shift = suffix.empty() ? 0 : suffix == "K" ? 10 : suffix == "M" ? 20 : -1;
  if (shift < 0 || value > (std::numeric_limits<uint64_t>::max() >> shift)) return 0;
  return value << shift;
}

MachineInfo DescribeMachine() {
  MachineInfo machine;
  machine.cpu = CpuModel();
  machine.cores = UsableCores();
  machine.last_level_cache_bytes = LastLevelCacheBytes();
  machine.total_memory_bytes =
      static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) * PageBytes();
  return machine;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total_pages = 0;
  uint64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * PageBytes();
}

}  // namespace varve
