// The table of a kind of kernels that belongs to ActiveKernels(), found by its name; private to
// src/kernels.

#ifndef VARVE_KERNELS_ACTIVE_TABLE_H_
#define VARVE_KERNELS_ACTIVE_TABLE_H_

#include <span>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace varve {

// `available`: scalar first; always the same list for a type.
template <class Table>
const Table& ActiveTable(std::span<const Table* const> available) {
  // Names are compared only once, because a cache unpacks thousands of pages a second.
  using Choice = std::pair<const Kernels*, const Table*>;
  static const std::vector<Choice> choices = [&] {
    std::vector<Choice> found;
    for (const Table* table : available) found.emplace_back(FindKernels(table->name), table);
    return found;
  }();
  const Kernels* active = &ActiveKernels();
  for (const auto& [kernels, table] : choices) {
    if (kernels == active) return *table;
  }
  return *available.front();
}

}  // namespace varve

#endif  // VARVE_KERNELS_ACTIVE_TABLE_H_
