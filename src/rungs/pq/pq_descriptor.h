// The rows of the table of rungs for pqMxB: one descriptor for every size that has been asked for,
// 512 x 9 at most, kept for the whole process. What they say needs no codebook. Thread-safe.

#ifndef VARVE_RUNGS_PQ_PQ_DESCRIPTOR_H_
#define VARVE_RUNGS_PQ_PQ_DESCRIPTOR_H_

#include <string_view>

#include "rungs/pq/pq_name.h"
#include "rungs/rung_table.h"

namespace varve {

struct PqDescriptor : RungDescriptor {
  PqSize size;
};

const PqDescriptor& PqDescriptorOf(const PqSize& size);

// For the table: by name or alias; null where an alias has no dim to refer to.
const RungDescriptor* FindPqRung(std::string_view name, int dim);

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_PQ_DESCRIPTOR_H_
