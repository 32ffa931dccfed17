#include "runtime/gguf/name_index.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace varve {

NameIndex::NameIndex(std::vector<std::string_view> names)
    : names_(std::move(names)), sorted_(names_.size()) {
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::sort(sorted_.begin(), sorted_.end(),
            [this](uint32_t a, uint32_t b) { return names_[a] < names_[b]; });
}

std::optional<size_t> NameIndex::Find(std::string_view name) const {
  const auto it =
      std::lower_bound(sorted_.begin(), sorted_.end(), name,
                       [this](uint32_t a, std::string_view b) { return names_[a] < b; });
  if (it == sorted_.end() || names_[*it] != name) return std::nullopt;
  return *it;
}

std::optional<std::string_view> NameIndex::Duplicate() const {
  const auto it =
      std::adjacent_find(sorted_.begin(), sorted_.end(),
                         [this](uint32_t a, uint32_t b) { return names_[a] == names_[b]; });
  if (it == sorted_.end()) return std::nullopt;
  return names_[*it];
}

}  // namespace varve
