// The name of a file with the hash that its content must have: "FILE#xxh3:0123456789abcdef". For
// files that carry no checksum of their own, and for people who want exactly the file that they
// have measured. Pure functions.

#ifndef VARVE_BASE_PINNED_NAME_H_
#define VARVE_BASE_PINNED_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve {

// "xxh3:0123456789abcdef": XXH3-64 of the content.
std::string HashText(uint64_t hash);
// The other way; the error quotes the text.
Result<uint64_t> ParseHash(std::string_view text);

struct PinnedName {
  std::string name;
  std::optional<uint64_t> hash;  // without one, any content will do

  // An error that names both hashes (kDataLoss) if `found` is not the one expected.
  Status Check(uint64_t found) const;
};

// What stands before the last "#xxh3:" is the name; any other '#' is part of it.
Result<PinnedName> ParsePinnedName(std::string_view text);

}  // namespace varve

#endif  // VARVE_BASE_PINNED_NAME_H_
