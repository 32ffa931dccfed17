#include "rungs/rung_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/kernels.h"
#include "rungs/block/block_rung.h"
#include "rungs/float/float_rung.h"
#include "rungs/pq/pq_descriptor.h"
#include "rungs/rung_table_rows.h"
#include "rungs/turned/turned_rung.h"

namespace varve {
namespace {

// In order of precision. A new rung adds its rows here.
constexpr RungDescriptor kRungs[] = {
    {.name = "f32",
     .id = RungId::kF32,
     .lane = LaneType::kF32,
     .can_append = true,
     .kernel_error = 1e-5,
     .strip_bytes = FloatStripBytes<FloatType::kF32>,
     .make = MakeFloatRung<FloatType::kF32>},
    {.name = "f16",
     .id = RungId::kF16,
     .lane = LaneType::kF16,
     .can_append = true,
     .kernel_error = 1e-5,
     .strip_bytes = FloatStripBytes<FloatType::kF16>,
     .make = MakeFloatRung<FloatType::kF16>},
    {.name = "bf16",
     .id = RungId::kBF16,
     .lane = LaneType::kBF16,
     .can_append = true,
     .kernel_error = 1e-5,
     .strip_bytes = FloatStripBytes<FloatType::kBF16>,
     .make = MakeFloatRung<FloatType::kBF16>},
    {.name = "q8_0",
     .id = RungId::kQ8_0,
     .lane = LaneType::kQ8,
     .dim_multiple = kBlockValues,
     .kernel_error = 1e-3,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ8>,
     .check_strip = CheckBlockStrip<BlockType::kQ8>,
     .make = MakeBlockRung<BlockType::kQ8, false>},
    {.name = "q8_0r",
     .id = RungId::kQ8_0r,
     .lane = LaneType::kQ8,
     .dim_multiple = kBlockValues,
     .kernel_error = 1e-3,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ8>,
     .check_strip = CheckBlockStrip<BlockType::kQ8>,
     .make = MakeBlockRung<BlockType::kQ8, true>},
    {.name = "q4_0",
     .id = RungId::kQ4_0,
     .lane = LaneType::kQ4,
     .dim_multiple = kBlockValues,
     .kernel_error = 5e-2,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ4>,
     .check_strip = CheckBlockStrip<BlockType::kQ4>,
     .make = MakeBlockRung<BlockType::kQ4, false>},
    {.name = "q4_0r",
     .id = RungId::kQ4_0r,
     .lane = LaneType::kQ4,
     .dim_multiple = kBlockValues,
     .kernel_error = 5e-2,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ4>,
     .check_strip = CheckBlockStrip<BlockType::kQ4>,
     .make = MakeBlockRung<BlockType::kQ4, true>},
    {.name = "t4",
     .id = RungId::kT4,
     .dim_multiple = kTurnedBlock,
     .kernel_error = 4e-2,
     .strip_bytes = TurnedRungStripBytes<4>,
     .check_strip = CheckTurnedRungStrip<4>,
     .expected_error = TurnedExpectedError<4>,
     .make = MakeTurnedRung<4>},
    {.name = "t3",
     .id = RungId::kT3,
     .dim_multiple = kTurnedBlock,
     .kernel_error = 4e-2,
     .strip_bytes = TurnedRungStripBytes<3>,
     .check_strip = CheckTurnedRungStrip<3>,
     .expected_error = TurnedExpectedError<3>,
     .make = MakeTurnedRung<3>},
    {.name = "t2",
     .id = RungId::kT2,
     .dim_multiple = kTurnedBlock,
     .kernel_error = 4e-2,
     .strip_bytes = TurnedRungStripBytes<2>,
     .check_strip = CheckTurnedRungStrip<2>,
     .expected_error = TurnedExpectedError<2>,
     .make = MakeTurnedRung<2>},
};

constexpr RungFamily kFamilies[] = {
    {.pattern = "pqMxB (B 4 to 12)",
     .aliases = "pq4 pq3 pq2",
     .knows = IsPqName,
     .find = FindPqRung},
};

std::string Joined(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

void AddWords(std::string_view words, std::vector<std::string_view>* list) {
  while (!words.empty()) {
    const size_t blank = words.find(' ');
    list->push_back(words.substr(0, blank));
    words.remove_prefix(blank == std::string_view::npos ? words.size() : blank + 1);
  }
}

// A block of 32 Gaussian values has its largest at about 2.1 standard deviations; codes of b bits
// cut twice that into 2^b steps, whose rounding error is uniform. Half a bit per value is the
// scale.
double ErrorOfBits(double bits_per_value) {
  if (bits_per_value >= 16) return 0;
  const double step = 2.1 / std::exp2(bits_per_value - 1.5);
  return step * step / 12;
}

}  // namespace

std::vector<const RungDescriptor*>& RungRows() {
  static std::vector<const RungDescriptor*> rows = [] {
    std::vector<const RungDescriptor*> all;
    for (const RungDescriptor& rung : kRungs) all.push_back(&rung);
    return all;
  }();
  return rows;
}

Status RungDescriptor::CheckDim(int dim) const {
  if (dim <= 0 || dim > kMaxDim || dim % dim_multiple != 0) {
    return InvalidArgument(fmt::format("rung {}: head_dim {} is not a multiple of {} in {} … {}",
                                       name, dim, dim_multiple, dim_multiple, kMaxDim));
  }
  return check_dim != nullptr ? check_dim(*this, dim) : Status();
}

double RungDescriptor::ExpectedError(const StripShape& shape) const {
  if (expected_error != nullptr) return expected_error(*this, shape);
  return ErrorOfBits(BitsPerValue(Part::kValue, shape));
}

std::unique_ptr<const Rung> RungDescriptor::Make(const RungBinding& binding) const {
  return make(*this, binding);
}

const RungDescriptor* FindRung(std::string_view name, int dim) {
  for (const RungDescriptor* rung : RungRows()) {
    if (rung->name == name) return rung;
  }
  for (const RungFamily& family : kFamilies) {
    if (family.knows(name)) return family.find(name, dim);
  }
  return nullptr;
}

bool IsRungName(std::string_view name) {
  return FindRung(name) != nullptr ||
         std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [&](const RungFamily& family) { return family.knows(name); });
}

std::vector<std::string_view> RungNames() {
  std::vector<std::string_view> names;
  for (const RungDescriptor* rung : RungRows()) names.push_back(rung->name);
  for (const RungFamily& family : kFamilies) AddWords(family.aliases, &names);
  return names;
}

std::vector<std::string_view> AppendableRungNames() {
  std::vector<std::string_view> names;
  for (const RungDescriptor* rung : RungRows()) {
    if (rung->can_append) names.push_back(rung->name);
  }
  return names;
}

std::string KnownRungNames() {
  std::vector<std::string_view> names;
  for (const RungDescriptor* rung : RungRows()) names.push_back(rung->name);
  for (const RungFamily& family : kFamilies) {
    names.push_back(family.pattern);
    names.push_back(family.aliases);
  }
  return Joined(names);
}

Result<double> RungBytesPerRow(const std::string& rung, Part part, int dim, int page_tokens) {
  const RungDescriptor* found = FindRung(rung, dim);
  if (found == nullptr) {
    return InvalidArgument(fmt::format("unknown rung \"{}\"; known: {}", rung, KnownRungNames()));
  }
  VARVE_RETURN_IF_ERROR(found->CheckDim(dim));
  if (page_tokens != 16 && page_tokens != 32 && page_tokens != 64 && page_tokens != 128) {
    return InvalidArgument(fmt::format("page_tokens {} is not 16, 32, 64 or 128", page_tokens));
  }
  return static_cast<double>(found->StripBytes(part, {0, 0, dim, page_tokens})) / page_tokens;
}

}  // namespace varve
