#include "runtime/gguf/gguf_types.h"

#include <array>

#include <fmt/format.h>

namespace varve {
namespace {

struct MetadataType {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<MetadataType, kNumGgufTypes> kMetadataTypes = {{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

// Index: the number in the file. Empty where ggml has withdrawn a number or never used it.
constexpr std::array<std::string_view, 42> kGgmlTypes = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "",         "",         "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
};

// Index: WeightType.
constexpr std::array<uint32_t, kNumWeightTypes> kGgmlNumbers = {0,  1,  30, 8,  2,  3,  6, 7,
                                                                12, 13, 14, 10, 11, 20, 23};

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return number < kNumGgufTypes ? kMetadataTypes[number].name : "unknown";
}

size_t GgufScalarBytes(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return number < kNumGgufTypes ? kMetadataTypes[number].bytes : 0;
}

std::optional<WeightType> WeightTypeFromGgml(uint32_t number) {
  for (size_t i = 0; i < kGgmlNumbers.size(); ++i) {
    if (kGgmlNumbers[i] == number) return static_cast<WeightType>(i);
  }
  return std::nullopt;
}

uint32_t GgmlNumberOf(WeightType type) { return kGgmlNumbers[static_cast<size_t>(type)]; }

std::string_view GgmlTypeName(uint32_t number) {
  if (number >= kGgmlTypes.size() || kGgmlTypes[number].empty()) return "unknown";
  return kGgmlTypes[number];
}

std::string ReadableTensorTypes() {
  std::string names;
  for (const uint32_t number : kGgmlNumbers) {
    if (!names.empty()) names += ' ';
    names += GgmlTypeName(number);
  }
  return names;
}

}  // namespace varve
