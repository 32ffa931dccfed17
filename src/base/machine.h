// Facts about the machine and the process, for reports, from /proc and sysfs. Values that the
// system does not tell are zero or "unknown". All calls may run at the same time.

#ifndef VARVE_BASE_MACHINE_H_
#define VARVE_BASE_MACHINE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace varve {

struct MachineInfo {
  std::string cpu;                      // "AMD EPYC 9B14", as the kernel names it
  int cores = 1;                        // logical CPUs that this process may run on
  uint64_t last_level_cache_bytes = 0;  // the largest single cache that CPU 0 sees
  uint64_t total_memory_bytes = 0;
};

MachineInfo DescribeMachine();

// Resident memory of this process at this moment.
uint64_t ResidentBytes();

// A size as sysfs writes it ("32768K", "36M", "512"), in bytes; 0 if the text is no such size.
uint64_t ParseCacheSize(std::string_view text);

}  // namespace varve

#endif  // VARVE_BASE_MACHINE_H_
