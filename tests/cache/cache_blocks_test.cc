// ggml's blocks in and out of a cache.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tests/cache_testing.h"
#include "varve/step.h"

namespace varve {
namespace cache_blocks_test {

constexpr CacheShape kShape{
    .num_layers = 2, .num_kv_heads = 2, .group_size = 2, .key_dim = 64, .value_dim = 32};

size_t BlockBytes(BlockFormat format) { return format == BlockFormat::kQ8_0 ? 34 : 18; }

// Blocks of ggml's quantizer for noise of widely different sizes, zeros among them.
std::vector<std::byte> MakeBlocks(BlockFormat format, size_t count, unsigned seed) {
  std::vector<float> values(count * 32);
  for (size_t i = 0; i < values.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float size = i / 32 % 7 == 0 ? 0.0f : std::ldexp(1.0f, static_cast<int>(i / 32 % 11) - 5);
    values[i] = (static_cast<float>(seed >> 8) / 8388608.0f - 1.0f) * size;
  }
  const auto type =
      static_cast<int>(format == BlockFormat::kQ8_0 ? BlockType::kQ8 : BlockType::kQ4);
  const size_t code_bytes = BlockBytes(format) - 2;
  std::vector<uint16_t> scales(count);
  std::vector<uint8_t> codes(count * code_bytes);
  ActiveKernels().quantize_blocks[type](values.data(), count, scales.data(), codes.data());
  std::vector<std::byte> blocks(count * BlockBytes(format));
  for (size_t b = 0; b < count; ++b) {
    std::memcpy(&blocks[b * BlockBytes(format)], &scales[b], 2);
    std::memcpy(&blocks[b * BlockBytes(format) + 2], &codes[b * code_bytes], code_bytes);
  }
  return blocks;
}

std::unique_ptr<Cache> MakeCache(const char* plan) {
  CacheOptions options;
  options.plan = *ParsePlan(plan);
  options.num_threads = 1;
  return Cache::Create(kShape, std::move(options)).value();
}

// A llama.cpp cache of `tokens` tokens: rows of all heads, K and V, the same in every layer.
struct Foreign {
  Foreign(BlockFormat k, BlockFormat v, int num_tokens)
      : key_format(k),
        value_format(v),
        tokens(num_tokens),
        key_row(2 * 2 * BlockBytes(k)),
        value_row(2 * BlockBytes(v)),
        keys(MakeBlocks(k, static_cast<size_t>(tokens) * 4, 1)),
        values(MakeBlocks(v, static_cast<size_t>(tokens) * 2, 2)) {}

  Status Import(Cache& cache, SequenceId id) const {
    return Prefill(cache, id, tokens, [&](Step& step, int64_t first, int count) -> Status {
      const auto at = static_cast<size_t>(first);
      for (int layer = 0; layer < kShape.num_layers; ++layer) {
        VARVE_RETURN_IF_ERROR(step.ImportBlocks(layer, id, {&keys[at * key_row], count, key_format},
                                                {&values[at * value_row], count, value_format}));
      }
      return Status();
    });
  }
  void ExpectExported(const Cache& cache, SequenceId id) const {
    for (int layer = 0; layer < kShape.num_layers; ++layer) {
      std::vector<std::byte> out(keys.size());
      const Result<int64_t> rows =
          cache.ExportBlocks(id, layer, Part::kKey, key_format, 0, tokens, out.data());
      ASSERT_OK(rows.status());
      EXPECT_EQ(*rows, tokens);
      EXPECT_EQ(out, keys) << "K of layer " << layer;
      out.resize(values.size());
      ASSERT_EQ(*cache.ExportBlocks(id, layer, Part::kValue, value_format, 0, tokens, out.data()),
                tokens);
      EXPECT_EQ(out, values) << "V of layer " << layer;
    }
  }

  BlockFormat key_format;
  BlockFormat value_format;
  int tokens;
  size_t key_row;  // bytes of a token, all heads
  size_t value_row;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
};

TEST(CacheBlocks, ALlamaCppCacheGoesInAndOutBitForBit) {
  struct Case {
    const char* plan;
    BlockFormat k;
    BlockFormat v;
  };
  for (const auto& [plan, k, v] :
       {Case{"q8_0,open_rung=f32", BlockFormat::kQ8_0, BlockFormat::kQ8_0},
        Case{"q4_0,open_rung=f32,exact=0", BlockFormat::kQ4_0, BlockFormat::kQ4_0},
        Case{"k=q8_0,v=q4_0,open_rung=f32,exact=0", BlockFormat::kQ8_0, BlockFormat::kQ4_0},
        Case{"q4_0,open_rung=f32,open=64,pack=store,exact=0", BlockFormat::kQ4_0,
             BlockFormat::kQ4_0}}) {
    // Sealed pages, and a tail that still is open.
    const Foreign foreign(k, v, 200);
    const std::unique_ptr<Cache> cache = MakeCache(plan);
    const SequenceId id = *cache->CreateSequence();
    ASSERT_OK(foreign.Import(*cache, id)) << plan;
    EXPECT_GT(cache->Stats().pages_sealed, 0u) << plan;
    foreign.ExpectExported(*cache, id);
  }
}

TEST(CacheBlocks, ExportGivesLiveRowsOfTheRangeOnly) {
  const Foreign foreign(BlockFormat::kQ8_0, BlockFormat::kQ8_0, 200);
  const std::unique_ptr<Cache> cache = MakeCache("q8_0,open_rung=f32");
  const SequenceId id = *cache->CreateSequence();
  ASSERT_OK(foreign.Import(*cache, id));
  ASSERT_OK(cache->RemoveRange(id, 30, 70));
  std::vector<std::byte> out(100 * foreign.key_row);
  ASSERT_EQ(*cache->ExportBlocks(id, 1, Part::kKey, BlockFormat::kQ8_0, 20, 120, out.data()), 60);
  const auto row = [&](int64_t token) {
    return &foreign.keys[static_cast<size_t>(token) * foreign.key_row];
  };
  EXPECT_EQ(std::memcmp(out.data(), row(20), 10 * foreign.key_row), 0);
  EXPECT_EQ(std::memcmp(&out[10 * foreign.key_row], row(70), 50 * foreign.key_row), 0);
}

TEST(CacheBlocks, APageThatWasQuantizedHereIsWhatGgmlWouldHold) {
  // f32 rows in, blocks out: those of the quantizer on the same rows.
  const std::unique_ptr<Cache> cache = MakeCache("q8_0,open_rung=f32");
  const SequenceId id = *cache->CreateSequence();
  std::vector<float> rows(128 * 2 * 64);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>((i * 37) % 101) / 50 - 1;
  ASSERT_OK(Prefill(*cache, id, 128, [&](Step& step, int64_t first, int count) -> Status {
    for (int layer = 0; layer < 2; ++layer) {
      VARVE_RETURN_IF_ERROR(step.Append(layer, id, {&rows[static_cast<size_t>(first) * 128], count},
                                        {&rows[static_cast<size_t>(first) * 64], count}));
    }
    return Status();
  }));
  std::vector<uint16_t> scales(128 * 4);
  std::vector<uint8_t> codes(scales.size() * 32);
  ActiveKernels().quantize_blocks[0](rows.data(), scales.size(), scales.data(), codes.data());
  std::vector<std::byte> out(scales.size() * 34);
  ASSERT_EQ(*cache->ExportBlocks(id, 0, Part::kKey, BlockFormat::kQ8_0, 0, 128, out.data()), 128);
  for (size_t b = 0; b < scales.size(); ++b) {
    ASSERT_EQ(std::memcmp(&out[b * 34], &scales[b], 2), 0) << b;
    ASSERT_EQ(std::memcmp(&out[b * 34 + 2], &codes[b * 32], 32), 0) << b;
  }
}

TEST(CacheBlocks, WhatWouldLoseBitsIsRefused) {
  const Foreign foreign(BlockFormat::kQ8_0, BlockFormat::kQ8_0, 200);
  {
    const std::unique_ptr<Cache> cache = MakeCache("q8_0");
    const SequenceId id = *cache->CreateSequence();
    const Status status = foreign.Import(*cache, id);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(),
              "ImportBlocks: layer 0: open_rung=f16 rounds the values of q8_0 blocks; use "
              "open_rung=f32");
    EXPECT_EQ(*cache->NextPosition(id), 0);
  }
  const std::unique_ptr<Cache> cache = MakeCache("q8_0r,open_rung=f32");
  const SequenceId id = *cache->CreateSequence();
  ASSERT_OK(foreign.Import(*cache, id));
  std::vector<std::byte> out(foreign.keys.size());
  const Result<int64_t> rows =
      cache->ExportBlocks(id, 0, Part::kKey, BlockFormat::kQ8_0, 0, 200, out.data());
  EXPECT_EQ(rows.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(rows.status().message(),
            "ExportBlocks: layer 0: the page at position 0 is stored as q8_0r, which is not q8_0 "
            "or a float rung");
}

TEST(CacheBlocks, ABlockThatGgmlNeverWritesIsRefused) {
  const std::unique_ptr<Cache> cache = MakeCache("q8_0,open_rung=f32");
  const SequenceId id = *cache->CreateSequence();
  const auto import = [&](uint16_t scale, uint8_t largest) {
    std::vector<std::byte> keys = MakeBlocks(BlockFormat::kQ8_0, 4, 5);
    const std::vector<std::byte> values = MakeBlocks(BlockFormat::kQ8_0, 2, 6);
    std::memcpy(&keys[3 * 34], &scale, 2);
    std::memset(&keys[3 * 34 + 2], 1, 32);
    keys[3 * 34 + 2] = std::byte{largest};
    Result<Step> step = Step::Begin(*cache, id, 1);
    return step->ImportBlocks(0, id, {keys.data(), 1}, {values.data(), 1});
  };
  EXPECT_OK(import(0x3C00, 127));
  EXPECT_OK(import(0, 5));  // a scale of 0: zeros
  for (const auto& [scale, largest] :
       {std::pair<uint16_t, uint8_t>{0x3C00, 100}, {0x7C00, 127}, {0x7E00, 127}, {0xBC00, 127}}) {
    EXPECT_EQ(import(scale, largest).message(),
              "ImportBlocks: keys: token 0, head 1, block 1: ggml's quantizer never writes this "
              "q8_0 block");
  }
}

TEST(CacheBlocks, ArgumentsAreChecked) {
  const std::unique_ptr<Cache> cache = MakeCache("q8_0,open_rung=f32");
  const SequenceId id = *cache->CreateSequence();
  const std::vector<std::byte> blocks = MakeBlocks(BlockFormat::kQ8_0, 8, 5);
  std::vector<std::byte> out(blocks.size());
  const BlockRowsView rows{blocks.data(), 1};
  EXPECT_EQ(cache->ImportBlocks(0, id, rows, rows).message(), "ImportBlocks: no step is open");
  const auto refused = [&](int layer, const BlockRowsView& keys) {
    Result<Step> step = Step::Begin(*cache, id, 1);
    return step->ImportBlocks(layer, id, keys, rows).message();
  };
  EXPECT_EQ(refused(2, rows), "ImportBlocks: layer 2 is outside 0 … 1");
  EXPECT_EQ(refused(0, {nullptr, 1}), "ImportBlocks: keys.data is null");
  EXPECT_EQ(refused(0, {blocks.data(), 0}), "ImportBlocks: keys.num_tokens 0 < 1");
  EXPECT_EQ(refused(0, {blocks.data(), 2}), "Append: keys.num_tokens 2 != values.num_tokens 1");
  EXPECT_EQ(refused(0, {blocks.data(), 1, static_cast<BlockFormat>(7)}),
            "ImportBlocks: format 7 is not 0 (q8_0) or 1 (q4_0)");
  const auto out_of = [&](SequenceId of, int layer, int64_t begin, std::byte* to) {
    return cache->ExportBlocks(of, layer, Part::kKey, BlockFormat::kQ8_0, begin, 1, to).status();
  };
  EXPECT_EQ(out_of({99}, 0, 0, out.data()).code(), StatusCode::kNotFound);
  EXPECT_EQ(out_of(id, 2, 0, out.data()).message(), "ExportBlocks: layer 2 is outside 0 … 1");
  EXPECT_EQ(out_of(id, 0, 2, out.data()).message(), "ExportBlocks: begin 2 > end 1");
  EXPECT_EQ(out_of(id, 0, 0, nullptr).message(), "ExportBlocks: out is null");
}

}  // namespace cache_blocks_test
}  // namespace varve
