// Compiled with -mamx-bf16 and AVX-512 where the processor is an x86 (CMakeLists.txt).

#include "runtime/kernels/amx_tiles.h"

// GCC and clang 14 spell the macro differently.
#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__AVX512BF16__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/kernels/amx_tiles-inl.h"

namespace varve {
namespace {

bool IsPermitted() {
  if (!HasAmxVectors()) return false;
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  constexpr unsigned kAmxBf16 = 1u << 22;
  constexpr unsigned kAmxTiles = 1u << 24;
  if ((d & kAmxBf16) == 0 || (d & kAmxTiles) == 0) return false;
  // Tiles are large, so Linux hands them out on demand: once, for all threads of the process.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const AmxKernels* FindAmxKernels() {
  static const bool permitted = IsPermitted();
  return permitted ? &kAmxKernels : nullptr;
}

}  // namespace varve

#else

const varve::AmxKernels* varve::FindAmxKernels() { return nullptr; }

#endif
