// The list of a kind of kernel tables, one per Highway target that is compiled in and that this
// machine runs, best last. Used once per simd_*.cc, under HWY_ONCE:
//
//   std::vector<const Kernels*> SimdKernels() { VARVE_SIMD_TABLES(Kernels, Table); }
//
// where every target's namespace has `const Kernels& Table(const char* name)`.

#ifndef VARVE_KERNELS_SIMD_TABLE_LIST_H_
#define VARVE_KERNELS_SIMD_TABLE_LIST_H_

#include <cstdint>
#include <vector>

#include "hwy/targets.h"

#if HWY_TARGETS & HWY_NEON
#define VARVE_ADD_NEON(Table) \
  if (supported & HWY_NEON) tables.push_back(&N_NEON::Table("neon"))
#else
#define VARVE_ADD_NEON(Table)
#endif
#if HWY_TARGETS & HWY_SSE4
#define VARVE_ADD_SSE4(Table) \
  if (supported & HWY_SSE4) tables.push_back(&N_SSE4::Table("sse4"))
#else
#define VARVE_ADD_SSE4(Table)
#endif
#if HWY_TARGETS & HWY_AVX2
#define VARVE_ADD_AVX2(Table) \
  if (supported & HWY_AVX2) tables.push_back(&N_AVX2::Table("avx2"))
#else
#define VARVE_ADD_AVX2(Table)
#endif
#if HWY_TARGETS & HWY_AVX3
#define VARVE_ADD_AVX3(Table) \
  if (supported & HWY_AVX3) tables.push_back(&N_AVX3::Table("avx512"))
#else
#define VARVE_ADD_AVX3(Table)
#endif
#if HWY_TARGETS & HWY_AVX3_DL
#define VARVE_ADD_AVX3_DL(Table) \
  if (supported & HWY_AVX3_DL) tables.push_back(&N_AVX3_DL::Table("avx512_vnni"))
#else
#define VARVE_ADD_AVX3_DL(Table)
#endif

#define VARVE_SIMD_TABLES(Type, Table)                                \
  std::vector<const Type*> tables;                                    \
  [[maybe_unused]] const int64_t supported = hwy::SupportedTargets(); \
  VARVE_ADD_NEON(Table);                                              \
  VARVE_ADD_SSE4(Table);                                              \
  VARVE_ADD_AVX2(Table);                                              \
  VARVE_ADD_AVX3(Table);                                              \
  VARVE_ADD_AVX3_DL(Table);                                           \
  return tables

#endif  // VARVE_KERNELS_SIMD_TABLE_LIST_H_
