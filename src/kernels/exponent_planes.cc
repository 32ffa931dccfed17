// The specification of the plane decoder in plain C++ (the table "scalar"), and the choice of
// table.

#include "kernels/exponent_planes.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/active_table.h"
#include "kernels/exponent_planes_tables.h"

namespace varve {
namespace {

bool BitAt(const uint8_t* bytes, size_t bit) { return (bytes[bit / 8] >> bit % 8 & 1) != 0; }

class ScalarPlaneDecoder {
 public:
  explicit ScalarPlaneDecoder(const PlaneDecodeArgs& args)
      : args_(args), ladder_(LadderOf(args.element)) {}

  bool Run() {
    const size_t elements = static_cast<size_t>(args_.num_rows) * static_cast<size_t>(args_.dim);
    const uint8_t* block = args_.blocks;
    for (size_t head = 0; head < static_cast<size_t>(args_.num_heads); ++head) {
      const uint8_t* bases = args_.bases + head * static_cast<size_t>(args_.dim);
      for (size_t first = 0; first < elements; first += kPlaneElements) {
        for (size_t i = 0; i < kPlaneElements; ++i) {
          const size_t channel =
              PlaneChannel(args_.layout, args_.num_rows, args_.dim, args_.chunk, first + i);
          values_[i] = args_.element == PairElement::kExponent ? kMissBase : bases[channel];
        }
        if (!AddLevels(block)) return false;
        WriteBlock(block, args_.out + head * args_.head_stride + 2 * first);
        block += PlaneBlockBytes(args_.element);
      }
    }
    for (int level = 1; level < ladder_.num_levels; ++level) {
      if (!EndsAt(args_.levels[level - 1], args_.level_bytes[level - 1], cursors_[level - 1]))
        return false;
    }
    return next_patch_ == args_.num_patches;
  }

 private:
  bool AddLevels(const uint8_t* block) {
    std::vector<size_t> here(kPlaneElements);  // the elements that have come to the level
    std::iota(here.begin(), here.end(), size_t{0});
    const uint8_t* planes = block + PairRawBlockBytes(args_.element, kPlaneElements);
    size_t at = 0;
    for (int l = 0; l < ladder_.num_levels; ++l) {
      const PlaneLevel& level = ladder_.levels[l];
      if (l > 0) {
        planes = args_.levels[l - 1];
        at = cursors_[l - 1];
        cursors_[l - 1] += static_cast<size_t>(level.bits) * here.size();
        if (cursors_[l - 1] > 8 * args_.level_bytes[l - 1]) return false;
      }
      std::vector<size_t> next;
      for (size_t j = 0; j < here.size(); ++j) {
        int set = 0, value = level.enter;
        for (int b = 0; b < level.bits; ++b) {
          if (!BitAt(planes, at + static_cast<size_t>(b) * here.size() + j)) continue;
          ++set;
          value += level.add[b];
        }
        values_[here[j]] = static_cast<uint8_t>(values_[here[j]] + value);
        if (set == level.bits) next.push_back(here[j]);
      }
      here = std::move(next);
    }
    for (const size_t i : here) {
      if (next_patch_ == args_.num_patches) return false;
      values_[i] = args_.patches[next_patch_++];
    }
    return true;
  }

  void WriteBlock(const uint8_t* block, std::byte* out) const {
    const int shift = ExponentShift(args_.element);
    for (size_t i = 0; i < kPlaneElements; ++i) {
      const uint32_t exponent = static_cast<uint32_t>(values_[i]) << shift;
      const auto word = static_cast<uint16_t>((exponent & ExponentMask(args_.element)) |
                                              PairRawBits(args_.element, block, kPlaneElements, i));
      std::memcpy(out + 2 * i, &word, 2);
    }
  }

  const PlaneDecodeArgs& args_;
  const PlaneLadder& ladder_;
  uint8_t values_[kPlaneElements] = {};
  size_t cursors_[kMaxPlaneLevels - 1] = {};  // bits
  size_t next_patch_ = 0;
};

bool DecodePlanesScalar(const PlaneDecodeArgs& args) { return ScalarPlaneDecoder(args).Run(); }

const PlaneKernels kScalar = {.name = "scalar", .decode = DecodePlanesScalar};

}  // namespace

constinit const PlaneNumbers kPlaneNumbers = [] {
  PlaneNumbers numbers{};
  for (size_t number = 0; number < 256; ++number) {
    for (uint8_t& byte : numbers.bytes[number]) byte = static_cast<uint8_t>(number);
  }
  return numbers;
}();

std::span<const PlaneKernels* const> AvailablePlaneKernels() {
  static const std::vector<const PlaneKernels*> tables = [] {
    std::vector<const PlaneKernels*> all = {&kScalar};
    for (const PlaneKernels* table : SimdPlaneKernels()) all.push_back(table);
    return all;
  }();
  return tables;
}

bool DecodePlanes(const PlaneDecodeArgs& args) {
  return ActiveTable(AvailablePlaneKernels()).decode(args);
}

}  // namespace varve
