// Where the tables of pq kernels come from; private to src/kernels.

#ifndef VARVE_KERNELS_PQ_TABLES_H_
#define VARVE_KERNELS_PQ_TABLES_H_

#include <vector>

#include "kernels/pq_kernels.h"

namespace varve {

// Best last, named as those of SimdKernels().
std::vector<const PqKernels*> SimdPqKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_PQ_TABLES_H_
