// Facts about the machine and the process, for reports. Values that the system does not tell are
// zero or "unknown". Reads /proc and sysfs; every call may run at once with any other.

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

// "32768K", "36M", "512" as in sysfs, in bytes; 0 if it is none of these.
uint64_t ParseCacheSize(std::string_view text);

}  // namespace varve

#endif  // VARVE_BASE_MACHINE_H_
