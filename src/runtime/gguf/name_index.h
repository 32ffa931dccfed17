// NameIndex: finds a name's position in a list of views, and says whether a name is there twice.
//
// A sorted list of positions and not a hash table: names come from strangers' files, and no choice
// of names makes this slow. Does not own the names. Immutable after construction.

#ifndef VARVE_RUNTIME_GGUF_NAME_INDEX_H_
#define VARVE_RUNTIME_GGUF_NAME_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace varve {

class NameIndex {
 public:
  NameIndex() = default;
  explicit NameIndex(std::vector<std::string_view> names);

  std::span<const std::string_view> names() const { return names_; }  // in the order given
  // Position in the order given; with duplicates, any of them.
  std::optional<size_t> Find(std::string_view name) const;
  // The first name, in sorted order, that is there more than once.
  std::optional<std::string_view> Duplicate() const;

 private:
  std::vector<std::string_view> names_;
  std::vector<uint32_t> sorted_;  // positions, by name
};

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_NAME_INDEX_H_
