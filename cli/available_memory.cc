#include "cli/available_memory.h"

#include <fstream>
#include <string>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {

uint64_t UsableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (uint64_t kib = 0; file >> key >> kib; file.ignore(64, '\n')) {
    if (key == "MemAvailable:") return (kib << 10) / 10 * 9;
  }
  return 0;
}

Status CheckMemory(std::string_view what, uint64_t bytes) {
  const uint64_t usable = UsableBytes();
  if (usable == 0 || bytes <= usable) return Status();
  return OutOfMemory(fmt::format("{} take {}, {} are available", what,
                                 HumanBytes(static_cast<double>(bytes)),
                                 HumanBytes(static_cast<double>(usable))));
}

}  // namespace varve::cli
