#include "kernels/exponent_planes.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

#include "kernels/kernel_testing.h"

namespace varve {
namespace exponent_planes_test {

// A stream of random codes: valid, whatever the bits are.
struct Stream {
  PlaneDecodeArgs args;
  std::vector<uint8_t> bases, blocks, patches;
  std::array<std::vector<uint8_t>, kMaxPlaneLevels - 1> levels;
  std::array<size_t, kMaxPlaneLevels - 1> bits{};

  // `share`: of 8 bits that are set.
  Stream(PairElement element, PairLayout layout, int heads, int rows, int dim, int chunk, int share,
         uint64_t seed) {
    TestRandom random(seed);
    args.element = element;
    args.layout = layout;
    args.num_heads = heads;
    args.num_rows = rows;
    args.dim = dim;
    args.chunk = chunk;
    for (int i = 0; i < heads * dim; ++i) bases.push_back(random.Bits() % 64);
    const size_t count = static_cast<size_t>(heads * rows * dim) / kPlaneElements;
    for (size_t i = 0; i < count; ++i) AddBlock(share, random);
    for (size_t l = 0; l < levels.size(); ++l) {
      args.level_bytes[l] = levels[l].size();
      levels[l].resize(levels[l].size() + kPlaneReadSlack, 0xA5);
      args.levels[l] = levels[l].data();
    }
    args.bases = bases.data();
    args.blocks = blocks.data();
    args.patches = patches.data();
    args.num_patches = patches.size();
  }

  uint64_t RandomPlane(int count, int share, TestRandom& random) {
    uint64_t plane = 0;
    for (int i = 0; i < count; ++i)
      plane |= uint64_t{static_cast<int>(random.Bits() % 8) < share} << i;
    return plane;
  }

  void AddBlock(int share, TestRandom& random) {
    const PlaneLadder& ladder = LadderOf(args.element);
    for (size_t i = 0; i < PairRawBlockBytes(args.element, kPlaneElements); ++i)
      blocks.push_back(static_cast<uint8_t>(random.Bits()));
    int here = 64;
    for (int l = 0; l < ladder.num_levels; ++l) {
      uint64_t on = ~uint64_t{0};
      for (int b = 0; b < ladder.levels[l].bits; ++b) {
        const uint64_t plane = RandomPlane(here, share, random);
        on &= plane;
        for (int i = 0; i < here; ++i) Append(l, plane >> i & 1);
      }
      here = std::popcount(here == 64 ? on : on & ((uint64_t{1} << here) - 1));
    }
    const uint64_t most = args.element == PairElement::kF16 ? 32 : 256;
    for (int i = 0; i < here; ++i) patches.push_back(static_cast<uint8_t>(random.Bits() % most));
  }

  void Append(int level, uint64_t bit) {
    std::vector<uint8_t>& bytes = level == 0 ? blocks : levels[static_cast<size_t>(level) - 1];
    size_t& used = level == 0 ? block_bits : bits[static_cast<size_t>(level) - 1];
    if (used % 8 == 0) bytes.push_back(0);
    bytes.back() = static_cast<uint8_t>(bytes.back() | bit << used % 8);
    ++used;
  }
  size_t block_bits = 0;

  std::vector<uint16_t> Decode(const PlaneKernels& kernels, bool& ok) const {
    const size_t head = static_cast<size_t>(args.num_rows) * static_cast<size_t>(args.dim);
    std::vector<uint16_t> out(head * static_cast<size_t>(args.num_heads));
    PlaneDecodeArgs with = args;
    with.out = reinterpret_cast<std::byte*>(out.data());
    with.head_stride = 2 * head;
    ok = kernels.decode(with);
    return out;
  }
};

struct Shape {
  PairLayout layout;
  int heads, rows, dim, chunk;
};
const Shape kShapes[] = {
    {PairLayout::kTiles, 1, 16, 4, 0},      {PairLayout::kTiles, 2, 32, 128, 0},
    {PairLayout::kTiles, 3, 16, 20, 0},     {PairLayout::kChunks, 1, 4, 16, 16},
    {PairLayout::kChunks, 2, 32, 128, 32},  {PairLayout::kChunks, 1, 13, 128, 128},
    {PairLayout::kChunks, 1, 1, 64, 64},    {PairLayout::kChunks, 2, 8, 48, 16},
    {PairLayout::kChunks, 1, 128, 256, 32}, {PairLayout::kChunks, 1, 3, 512, 512},
};

TEST(ExponentPlanes, TablesAgreeBitForBit) {
  const PlaneKernels& scalar = *AvailablePlaneKernels()[0];
  for (const PlaneKernels* table : AvailablePlaneKernels()) {
    for (const Shape& s : kShapes) {
      ASSERT_TRUE(HasPlanes(s.layout, s.rows, s.dim, s.chunk));
      for (const PairElement element :
           {PairElement::kF16, PairElement::kBF16, PairElement::kExponent}) {
        for (const int share : {0, 2, 4, 7, 8}) {
          const Stream stream(element, s.layout, s.heads, s.rows, s.dim, s.chunk, share,
                              static_cast<uint64_t>(share + s.dim));
          bool expected = false, ok = false;
          EXPECT_EQ(stream.Decode(*table, ok), stream.Decode(scalar, expected))
              << table->name << " " << s.dim << " " << share;
          EXPECT_TRUE(expected);
          EXPECT_TRUE(ok) << table->name;
        }
      }
    }
  }
}

TEST(ExponentPlanes, StreamsOfAnotherLengthAreRefused) {
  for (const PlaneKernels* table : AvailablePlaneKernels()) {
    const Stream good(PairElement::kF16, PairLayout::kTiles, 1, 32, 64, 0, 6, 1);
    const auto refuses = [&](const Stream& stream) {
      bool ok = true;
      (void)stream.Decode(*table, ok);
      return !ok;
    };
    EXPECT_FALSE(refuses(good));
    for (size_t level = 0; level < good.levels.size(); ++level) {
      Stream bad = good;
      ++bad.args.level_bytes[level];
      EXPECT_TRUE(refuses(bad)) << table->name << " " << level;
      bad.args.level_bytes[level] -= 2;
      EXPECT_TRUE(refuses(bad)) << table->name << " " << level;
      bad.args.level_bytes[level] = 0;
      EXPECT_TRUE(refuses(bad)) << table->name << " " << level;
    }
    Stream bad = good;
    ASSERT_GT(bad.args.num_patches, 0u);
    --bad.args.num_patches;
    EXPECT_TRUE(refuses(bad)) << table->name;
    bad.args.num_patches = 0;
    EXPECT_TRUE(refuses(bad)) << table->name;
    bad = good;
    bad.patches.push_back(0);
    bad.args.patches = bad.patches.data();
    ++bad.args.num_patches;
    EXPECT_TRUE(refuses(bad)) << table->name;
  }
}

TEST(ExponentPlanes, LaddersReachWhatTheyPromise) {
  // All codes of a ladder, by decoding one element that has them.
  const auto reached = [](const PlaneLadder& ladder) {
    std::vector<int> values;
    int value = 0;
    for (int l = 0; l < ladder.num_levels; ++l) {
      const PlaneLevel& level = ladder.levels[l];
      value += level.enter;
      const int all = (1 << level.bits) - 1;
      for (int code = 0; code < all; ++code) {
        values.push_back(value + (code & 1) * level.add[0] + (code >> 1) * level.add[1]);
      }
      for (int b = 0; b < level.bits; ++b) value += level.add[b];
    }
    return values;
  };
  EXPECT_EQ(reached(kExponentLadder), (std::vector<int>{0, -1, -2, -3, -4, -5, 1, -6, -7, -8}));
  EXPECT_EQ(reached(kMissLadder), (std::vector<int>{0, 1, -1, 2, -2, 3, -3}));
}

}  // namespace exponent_planes_test
}  // namespace varve
