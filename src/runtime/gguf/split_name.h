// How a model that is split over several files says so: in the names ("…-00001-of-00003.gguf",
// counted from 1) and in the keys split.no (counted from 0), split.count and split.tensors.count.
// Internal to src/runtime/gguf. Pure functions.

#ifndef VARVE_RUNTIME_GGUF_SPLIT_NAME_H_
#define VARVE_RUNTIME_GGUF_SPLIT_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/gguf/gguf_parser.h"
#include "varve/status.h"

namespace varve {

struct SplitName {
  std::string prefix;  // the path up to "-00001-of-00003.gguf"
  int64_t number = 0;  // from 1
  int64_t count = 0;
};

std::optional<SplitName> ParseSplitName(std::string_view path);
std::string PartName(std::string_view prefix, int64_t number, int64_t count);

struct SplitKeys {
  int64_t number = 0;        // split.no
  int64_t count = 1;         // split.count; 1 for a file that is not split
  int64_t num_tensors = -1;  // split.tensors.count, of all parts; -1 if the file does not say
};

// A file without these keys is part 0 of 1.
Result<SplitKeys> ReadSplitKeys(const GgufPart& part, const std::string& name);

// That a part is the part `number` of the split that begins with `first`.
Status CheckPart(const SplitKeys& part, int64_t number, const SplitKeys& first,
                 const std::string& name);

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_SPLIT_NAME_H_
