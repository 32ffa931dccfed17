// Compiled with -mavx2 where the processor is an x86 (CMakeLists.txt).

#include "kernels/content_hash_tables.h"

#if defined(__AVX2__)
#include "kernels/content_hash-inl.h"

const varve::HashFunctions* varve::Avx2HashFunctions() { return &kFunctions; }
#else
const varve::HashFunctions* varve::Avx2HashFunctions() { return nullptr; }
#endif
