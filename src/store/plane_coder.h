// Float strips as exponent planes and raw bits: the quick lossless mode for f16 and bf16, for pages
// that attention unpacks in every step. It takes 1 to 2 % more bytes than pairs
// (exponent_coder.h) and decodes three times as fast. Bytes in docs/format/packed.md, the code in
// kernels/exponent_planes.h. Functions are pure.

#ifndef VARVE_STORE_PLANE_CODER_H_
#define VARVE_STORE_PLANE_CODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_io.h"
#include "base/inline_buffer.h"
#include "kernels/exponent_planes.h"
#include "store/exponent_coder.h"

namespace varve::store {

// Whether a plane can be cut into blocks of 64 elements; f32 never.
bool HasPlanes(const FloatPlane& plane);

// The base of every channel of all heads that takes the fewest bits.
std::vector<uint8_t> FitBases(const FloatPlane& plane, const SplitElements& split);

// The bases as bytes: the lowest and half a byte each, or a byte each where that is too narrow.
void AppendBases(std::span<const uint8_t> bases, std::vector<std::byte>& out);
using PlaneBases = InlineBuffer<uint8_t, 1024>;
Status ReadBases(ByteReader& reader, const FloatPlane& plane, PlaneBases& buffer);

// Appends the stream. False, with `out` as it was, if it would take more than `limit` bytes.
bool AppendPlaneStream(const FloatPlane& plane, const SplitElements& split,
                       std::span<const uint8_t> bases, size_t limit, std::vector<std::byte>& out);
// Reads a stream that fills the rest of `reader`. Whatever it holds, only the strips are written.
// Of misses, here as there, `bases` is empty.
Status ReadPlaneStream(ByteReader& reader, const FloatPlane& plane, std::span<const uint8_t> bases,
                       std::byte* out, size_t head_stride);

}  // namespace varve::store

#endif  // VARVE_STORE_PLANE_CODER_H_
