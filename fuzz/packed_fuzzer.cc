// Packed parts and dictionaries from strangers: no bytes may crash the reader or make it write
// outside its buffer. Bytes that unpack must have the hash that the part names, and every
// instruction set must give the same answer.
//
// Input: a byte that says which of the fixed dictionaries helps, then a packed part; or, with the
// byte 255, a dictionary.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/rotated_rows.h"
#include "store/dictionary.h"
#include "store/part_codec.h"

namespace varve::store {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// Rows that repeat, with exponents around 15, so that dictionaries have units and rows.
std::shared_ptr<const Dictionary> MakeDictionary(LaneType lane, PartLayout layout) {
  const PartShape shape = {lane, layout, 2, 16, 32};
  std::vector<std::byte> bytes(shape.Bytes());
  uint32_t state = 1;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    state = state * 1664525 + 1013904223;
    const uint16_t word = static_cast<uint16_t>(0x3000 + (state >> 20));
    std::memcpy(&bytes[i], &word, 2);
  }
  const PartView view = {shape, bytes.data(), 0};
  const PartView samples[] = {view, view};
  return *BuildDictionary(samples);
}

// Rows of K that turn from token to token, each of eight tokens eight times.
std::shared_ptr<const Dictionary> MakeRotatedDictionary(LaneType lane) {
  const PartShape shape = {lane, PartLayout::kKey, 2, 16, 32};
  std::vector<uint32_t> turns;
  for (int i = 0; i < 16; ++i) turns.push_back(0x28BE60DB >> i);  // 2^-i radians
  std::vector<std::vector<std::byte>> pages(4, std::vector<std::byte>(shape.Bytes()));
  std::vector<PartView> samples;
  uint32_t state = 1;
  std::vector<uint16_t> tokens(8 * 64), row(64);
  for (uint16_t& word : tokens) {
    state = state * 1664525 + 1013904223;
    word = static_cast<uint16_t>(0x3000 + (state >> 20) + (state >> 4 & 0x8000));
  }
  for (uint32_t t = 0; t < 64; ++t) {
    varve::RotateRowArgs args;
    args.bf16 = lane == LaneType::kBF16;
    args.dim = 32;
    args.turns = turns.data();
    args.distance = t;
    for (size_t head = 0; head < 2; ++head) {
      args.row = &tokens[t * 5 % 8 * 64 + 32 * head];
      args.out = &row[32 * head];
      varve::AvailableRotationKernels()[0]->rotate_row(args);
    }
    ScatterRow(shape, reinterpret_cast<const std::byte*>(row.data()), static_cast<int>(t % 16),
               {pages[t / 16], 0});
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    samples.push_back({shape, pages[i].data(), 0, static_cast<int64_t>(16 * i)});
  }
  return *BuildDictionary(samples);
}

const Dictionary* DictionaryOf(uint8_t index) {
  static const std::vector<std::shared_ptr<const Dictionary>> all = [] {
    std::vector<std::shared_ptr<const Dictionary>> made = {nullptr};
    for (const LaneType lane : {LaneType::kF16, LaneType::kBF16, LaneType::kF32, LaneType::kQ8}) {
      made.push_back(MakeDictionary(lane, PartLayout::kKey));
      made.push_back(MakeDictionary(lane, PartLayout::kValue));
    }
    for (const LaneType lane : {LaneType::kF16, LaneType::kBF16}) {
      made.push_back(MakeRotatedDictionary(lane));
      Require(made.back()->rotation() != nullptr);
    }
    return made;
  }();
  return all[index % all.size()].get();
}

void UnpackEverywhere(std::span<const std::byte> packed, const Dictionary* dictionary) {
  const Result<size_t> size = UnpackedSize(packed);
  if (!size.ok()) {
    Require(size.status().code() == StatusCode::kDataLoss);
    return;
  }
  if (*size > size_t{1} << 20) return;  // for the fuzzer's memory; nothing else depends on it
  bool first = true, first_ok = false;
  std::vector<std::byte> first_out;
  for (const varve::Kernels* table : varve::AvailableKernels()) {
    varve::SetActiveKernels(*table);
    std::vector<std::byte> out(*size);
    const varve::Status status = Unpack(packed, dictionary, {out, 0});
    Require(status.ok() || !status.message().empty());
    const Result<PackedInfo> info = ReadPackedInfo(packed);
    if (status.ok()) Require(HashPart({info->shape, out.data(), 0}) == info->content_hash);
    // Without the check of the hash garbage may come out, but the same garbage everywhere.
    const varve::Status unchecked = Unpack(packed, dictionary, {out, 0}, {.verify = false});
    if (first) {
      first_ok = unchecked.ok();
      first_out = out;
      first = false;
    }
    Require(unchecked.ok() == first_ok);
    if (first_ok) Require(out == first_out);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // A copy of the exact size: nothing readable behind it.
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> rest(bytes + 1, bytes + size);
  if (data[0] != 255) {
    UnpackEverywhere(rest, DictionaryOf(data[0]));
    return 0;
  }
  const auto dictionary = Dictionary::Parse(rest);
  if (!dictionary.ok()) {
    Require(dictionary.status().message().starts_with("dictionary: "));
    return 0;
  }
  Require((*dictionary)->Serialize() == rest);
  for (size_t i = 0; i < (*dictionary)->num_rows(); ++i) {
    // Rows of K are found where they are, unless they are too strange to turn.
    if ((*dictionary)->rotation() == nullptr) {
      Require((*dictionary)->FindRow((*dictionary)->row(i)) >= 0);
    } else {
      (void)(*dictionary)->FindRotatedRow((*dictionary)->row(i), (*dictionary)->position(i) + 7);
    }
  }
  return 0;
}

}  // namespace varve::store
