// Rows of K at another position: what RoPE makes of a known row some tokens further, and the strip
// that rows are written to.
//
// In the first layer a key depends on the token alone but for its rotation, so the row of an
// earlier occurrence, turned on by the distance, misses the new row by rounding only. These loops
// turn the row and add what was missed. Everything is integer arithmetic or single rounded
// operations of f32 in a fixed order, so every instruction set gives the same bits (files depend on
// it). Pure, may run concurrently.

#ifndef VARVE_KERNELS_ROTATED_ROWS_H_
#define VARVE_KERNELS_ROTATED_ROWS_H_

#include <cstdint>
#include <span>

namespace varve {

// What a missed distance of 0 is stored as: bytes, -128 … 127.
inline constexpr int kRotationMissBias = 128;

enum class RotationOrder : uint8_t {
  kInterleaved = 0,  // channels 2i and 2i + 1 turn together
  kHalves = 1,       // channels i and i + dim / 2
};

struct RotateRowArgs {
  bool bf16 = false;  // f16 otherwise
  RotationOrder order = RotationOrder::kInterleaved;
  int dim = 0;                       // a multiple of 16
  const uint16_t* row = nullptr;     // [dim] the known row
  const uint32_t* turns = nullptr;   // [dim / 2] 2^-32 turns a token
  uint32_t distance = 0;             // tokens from the known row to the new one, modulo 2^32
  const uint16_t* misses = nullptr;  // [dim] new - predicted + kRotationMissBias; null: all 0
  uint16_t* out = nullptr;           // [dim]
};

// Floats of 16 bits in the order of their values, without a gap; its own inverse. Differences are
// modulo 2^16.
constexpr uint16_t OrderedBits(uint16_t bits) {
  return static_cast<uint16_t>(bits & 0x8000 ? bits ^ 0x7FFF : bits);
}

// One implementation; `name` is that of the kernel table that it belongs to.
struct RotationKernels {
  const char* name;
  void (*rotate_row)(const RotateRowArgs&);
  // Sixteen rows [dim] as a tile of a strip of K, [dim][16].
  void (*fill_tile)(const uint16_t* const* rows, int dim, uint16_t* out);
};

// The implementation that belongs to ActiveKernels().
const RotationKernels& ActiveRotationKernels();

// Scalar first, best last, named as those of AvailableKernels().
std::span<const RotationKernels* const> AvailableRotationKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_ROTATED_ROWS_H_
