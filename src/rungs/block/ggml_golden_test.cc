// Scales and codes of q8_0 and q4_0 are ggml's to the byte: compared with golden vectors that
// tools/make_ggml_golden.py wrote, whose text says what they hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/kernel_testing.h"
#include "rungs/block/block_rung.h"
#include "rungs/block/block_strip.h"
#include "rungs/rung_testing.h"
#include "tests/test_data.h"

namespace varve {
namespace ggml_golden_test {

constexpr int kNumRows = 32;

template <typename T>
std::vector<T> ReadFile(const std::string& name) {
  const auto path = std::filesystem::path(TestDataPath()) / "ggml_blocks" / name;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  EXPECT_TRUE(file) << path;
  if (!file) return {};
  std::vector<T> values(static_cast<size_t>(file.tellg()) / sizeof(T));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

struct Golden {
  BlockType type;
  int dim;
  std::vector<float> input;       // [kNumRows, dim]
  std::vector<std::byte> blocks;  // [kNumRows, dim / 32] ggml blocks
  std::vector<float> decoded;     // [kNumRows, dim]

  size_t row_bytes() const {
    return static_cast<size_t>(dim) / kBlockValues * GgmlBlockBytes(type);
  }
  const Rung& rung() const { return TestRung(type == BlockType::kQ8 ? "q8_0" : "q4_0"); }
};

std::vector<Golden> AllGoldens() {
  std::vector<Golden> goldens;
  for (const int dim : {64, 96, 128}) {
    for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
      const std::string stem = "dim" + std::to_string(dim);
      const std::string name = stem + (type == BlockType::kQ8 ? ".q8_0" : ".q4_0");
      Golden golden{type, dim, ReadFile<float>(stem + ".f32"), ReadFile<std::byte>(name),
                    ReadFile<float>(name + ".f32")};
      EXPECT_EQ(golden.input.size(), static_cast<size_t>(kNumRows) * dim);
      EXPECT_EQ(golden.blocks.size(), kNumRows * golden.row_bytes());
      EXPECT_EQ(golden.decoded.size(), golden.input.size());
      goldens.push_back(std::move(golden));
    }
  }
  return goldens;
}

class GgmlGolden : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, GgmlGolden, testing::ValuesIn(AllTables()), TableName);

TEST_P(GgmlGolden, TheQuantizerGivesGgmlsBytes) {
  for (const Golden& golden : AllGoldens()) {
    const size_t count = golden.input.size() / kBlockValues;
    const size_t code_bytes = BlockCodeBytes(golden.type);
    std::vector<uint16_t> scales(count);
    std::vector<uint8_t> codes(count * code_bytes);
    EXPECT_EQ(GetParam()->quantize_blocks[static_cast<int>(golden.type)](
                  golden.input.data(), count, scales.data(), codes.data()),
              0u);
    for (size_t b = 0; b < count; ++b) {
      const std::byte* block = &golden.blocks[b * GgmlBlockBytes(golden.type)];
      const size_t row = b * kBlockValues / golden.dim;
      ASSERT_EQ(std::memcmp(block, &scales[b], 2), 0) << "dim " << golden.dim << " row " << row;
      ASSERT_EQ(std::memcmp(block + 2, &codes[b * code_bytes], code_bytes), 0)
          << "dim " << golden.dim << " row " << row;
    }
  }
}

TEST(GgmlExchange, EncodeThenExportGivesGgmlsBytes) {
  for (const Golden& golden : AllGoldens()) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      const StripShape shape{0, 0, golden.dim, 32};
      std::vector<std::byte> strip(BlockStripBytes(golden.type, shape));
      std::vector<std::byte> out(golden.blocks.size());
      EXPECT_EQ(golden.rung().Encode(part, shape, golden.input.data(), kNumRows, strip.data()), 0u);
      ExportGgmlRows(golden.type, part, shape, strip.data(), 0, kNumRows, out.data());
      EXPECT_EQ(out, golden.blocks) << "dim " << golden.dim;
    }
  }
}

TEST(GgmlExchange, ImportThenExportIsTheIdentity) {
  for (const Golden& golden : AllGoldens()) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      for (const int page_tokens : {16, 32, 64, 128}) {
        const StripShape shape{0, 0, golden.dim, page_tokens};
        for (int num_rows : {1, 3, 4, 15, 16, 17, 32}) {
          num_rows = std::min(num_rows, page_tokens);
          const auto end =
              golden.blocks.begin() + static_cast<ptrdiff_t>(num_rows * golden.row_bytes());
          const std::vector<std::byte> in(golden.blocks.begin(), end);
          GuardedBuffer<std::byte> strip(BlockStripBytes(golden.type, shape));
          GuardedBuffer<std::byte> out(in.size());
          ASSERT_TRUE(
              ImportGgmlRows(golden.type, part, shape, in.data(), num_rows, strip.data()).ok());
          ExportGgmlRows(golden.type, part, shape, strip.data(), 0, num_rows, out.data());
          ASSERT_TRUE(strip.ZonesIntact() && out.ZonesIntact());
          ASSERT_EQ(std::memcmp(in.data(), out.data(), in.size()), 0)
              << "dim " << golden.dim << " page_tokens " << page_tokens << " rows " << num_rows;
        }
      }
    }
  }
}

TEST(GgmlExchange, ExportTakesAnyRangeOfRows) {
  for (const Golden& golden : AllGoldens()) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      const StripShape shape{0, 0, golden.dim, 64};
      std::vector<std::byte> strip(BlockStripBytes(golden.type, shape));
      ASSERT_TRUE(
          ImportGgmlRows(golden.type, part, shape, golden.blocks.data(), kNumRows, strip.data())
              .ok());
      for (const auto& [first, count] : {std::pair{0, 1}, {5, 13}, {15, 2}, {31, 1}, {7, 0}}) {
        std::vector<std::byte> out(count * golden.row_bytes());
        ExportGgmlRows(golden.type, part, shape, strip.data(), first, count, out.data());
        EXPECT_TRUE(std::equal(out.begin(), out.end(), &golden.blocks[first * golden.row_bytes()]));
      }
    }
  }
}

TEST(GgmlExchange, ImportThenDecodeIsGgmlsDequantization) {
  for (const Golden& golden : AllGoldens()) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      for (const int page_tokens : {32, 128}) {
        const StripShape shape{0, 0, golden.dim, page_tokens};
        std::vector<std::byte> strip(BlockStripBytes(golden.type, shape));
        ASSERT_TRUE(
            ImportGgmlRows(golden.type, part, shape, golden.blocks.data(), kNumRows, strip.data())
                .ok());
        std::vector<float> rows(golden.input.size());
        golden.rung().Decode(part, shape, strip.data(), 0, kNumRows, rows.data());
        ASSERT_TRUE(SameBits(rows.data(), golden.decoded.data(), rows.size()))
            << "dim " << golden.dim;
      }
    }
  }
}

TEST(GgmlImport, RefusesScalesThatGgmlNeverWrites) {
  const StripShape shape = {0, 0, 32, 16};
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    std::vector<std::byte> ggml(2 * GgmlBlockBytes(type));
    std::vector<std::byte> strip(BlockStripBytes(type, shape));
    const auto import_second = [&](uint16_t scale_bits) {
      std::memcpy(ggml.data() + GgmlBlockBytes(type), &scale_bits, 2);
      return ImportGgmlRows(type, Part::kKey, shape, ggml.data(), 2, strip.data());
    };
    EXPECT_TRUE(import_second(0x3C00).ok());
    EXPECT_EQ(import_second(0x7C00).message(), "ggml block 1: scale inf is not finite");
    EXPECT_FALSE(import_second(0x7E00).ok());
    // The sign of a q4_0 scale is that of its largest value; q8_0 has none.
    EXPECT_EQ(import_second(0xBC00).ok(), type == BlockType::kQ4);
  }
}

}  // namespace ggml_golden_test
}  // namespace varve
