// SequenceId: the name of one sequence of a cache. Ids are never 0 and never reused: a freed id
// stays invalid.

#ifndef VARVE_SEQUENCE_ID_H_
#define VARVE_SEQUENCE_ID_H_

#include <cstdint>

namespace varve {

struct SequenceId {
  uint64_t value = 0;
  bool operator==(const SequenceId&) const = default;
};

}  // namespace varve

#endif  // VARVE_SEQUENCE_ID_H_
