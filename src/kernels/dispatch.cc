#include <atomic>
#include <cstdlib>
#include <string>

#include "kernels/kernel_tables.h"

namespace varve {
namespace {

struct Selection {
  std::vector<const Kernels*> available;
  std::atomic<const Kernels*> active;
  std::string warning;

  Selection() {
    available.push_back(&ScalarKernels());
    for (const Kernels* table : SimdKernels()) available.push_back(table);
    active = available.back();
    const char* wanted = std::getenv("VARVE_ISA");
    if (wanted == nullptr || *wanted == '\0') return;
    for (const Kernels* table : available) {
      if (std::string_view(table->name) == wanted) {
        active = table;
        return;
      }
    }
    warning = "VARVE_ISA=" + std::string(wanted) + ": not on this machine; available:";
    for (const Kernels* table : available) warning += std::string(" ") + table->name;
  }
};

Selection& TheSelection() {
  static Selection selection;
  return selection;
}

}  // namespace

const Kernels& ActiveKernels() { return *TheSelection().active.load(std::memory_order_relaxed); }

std::span<const Kernels* const> AvailableKernels() { return TheSelection().available; }

const Kernels* FindKernels(std::string_view name) {
  for (const Kernels* table : AvailableKernels()) {
    if (name == table->name) return table;
  }
  return nullptr;
}

void SetActiveKernels(const Kernels& kernels) { TheSelection().active = &kernels; }

std::string_view KernelSelectionWarning() { return TheSelection().warning; }

}  // namespace varve
