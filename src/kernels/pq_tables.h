// Where the tables of pq kernels come from; private to src/kernels.

#ifndef VARVE_KERNELS_PQ_TABLES_H_
#define VARVE_KERNELS_PQ_TABLES_H_

#include <vector>

#include "kernels/pq_kernels.h"

namespace varve {

// Writes the table of a query with codes of 4 bits from its products [M][16].
void RoundPqTable(const PqShape& shape, const float* table, std::byte* query);

// Best last, named as those of SimdKernels().
std::vector<const PqKernels*> SimdPqKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_PQ_TABLES_H_
