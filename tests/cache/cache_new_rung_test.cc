// The promise of the table of rungs: a new rung is its own code and a row of the table. Here is one
// that nothing else knows, u8: each row as bytes between its smallest and its largest value. The
// grammar, page sizes, the codec's lane, a cache with encoding, attention and packing, and files
// take it from its descriptor.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "pages/packed_page.h"
#include "rungs/rung.h"
#include "rungs/rung_table_testing.h"
#include "tests/cache/cache_twin.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_testing.h"

namespace varve {
namespace cache_new_rung_test {

// A strip: [page_tokens] pairs of f32, the smallest value and the step; then [page_tokens, dim]
// codes. Attention decodes a row and computes in f32.
class ByteRung final : public Rung {
 public:
  using Rung::Rung;

  uint64_t Encode(Part part, const StripShape& shape, const float* rows, int num_rows,
                  std::byte* strip) const override {
    std::memset(strip, 0, StripBytes(part, shape));
    for (int token = 0; token < num_rows; ++token) {
      const float* row = rows + static_cast<size_t>(token) * shape.dim;
      const auto [low, high] = std::minmax_element(row, row + shape.dim);
      const float range[2] = {*low, (*high - *low) / 255};
      std::memcpy(strip + 8 * token, range, 8);
      for (int d = 0; d < shape.dim; ++d) {
        const float level = range[1] > 0 ? (row[d] - range[0]) / range[1] : 0;
        Codes(shape, strip, token)[d] = static_cast<std::byte>(std::lround(level));
      }
    }
    return 0;
  }
  void Decode(Part, const StripShape& shape, const std::byte* strip, int first, int count,
              float* rows) const override {
    for (int token = first; token < first + count; ++token) {
      float range[2];
      std::memcpy(range, strip + 8 * token, 8);
      const std::byte* codes = strip + 8 * shape.page_tokens + token * shape.dim;
      for (int d = 0; d < shape.dim; ++d)
        *rows++ = range[0] + range[1] * static_cast<float>(std::to_integer<int>(codes[d]));
    }
  }

  KeySpace key_space() const override { return KeySpace::kOwn; }
  size_t PreparedRowBytes(const StripShape& shape, int) const override { return 4 * shape.dim; }
  void PrepareQuery(const StripShape& shape, const float* queries, int num_rows,
                    std::byte* prepared) const override {
    std::memcpy(prepared, queries, static_cast<size_t>(num_rows) * 4 * shape.dim);
  }
  void Scores(const StripShape& shape, const std::byte* strip, const std::byte* prepared,
              int num_rows, int num_tokens, float* scores, size_t scores_stride,
              ReadAhead*) const override {
    std::vector<float> key(shape.dim), query(shape.dim);
    for (int token = 0; token < num_tokens; ++token) {
      Decode(Part::kKey, shape, strip, token, 1, key.data());
      for (int row = 0; row < num_rows; ++row) {
        std::memcpy(query.data(), prepared + row * PreparedRowBytes(shape, num_rows),
                    4 * query.size());
        float sum = 0;
        for (int d = 0; d < shape.dim; ++d) sum += key[d] * query[d];
        scores[row * scores_stride + token] = sum;
      }
    }
  }

  ValueSpace value_space() const override { return ValueSpace::kPlain; }
  size_t AccumulatorFloats(const StripShape& shape) const override { return shape.dim; }
  void AddValuePages(const StripShape& shape, std::span<const ValuePage> pages,
                     size_t weights_stride, const float*, int num_rows, float* accumulators,
                     ReadAhead*) const override {
    std::vector<float> value(shape.dim);
    for (const ValuePage& page : pages) {
      for (int token = page.first; token < page.first + page.count; ++token) {
        Decode(Part::kValue, shape, page.strip, token, 1, value.data());
        for (int row = 0; row < num_rows; ++row) {
          kernels().add_scaled(accumulators + row * shape.dim, value.data(), value.size(),
                               page.weights[row * weights_stride + token]);
        }
      }
    }
  }
  void FinishValues(const StripShape& shape, const float* accumulators, int num_rows,
                    float* output) const override {
    kernels().add_scaled(output, accumulators, static_cast<size_t>(num_rows) * shape.dim, 1.0f);
  }
  bool values_always_finite() const override { return true; }

 private:
  static std::byte* Codes(const StripShape& shape, std::byte* strip, int token) {
    return strip + 8 * shape.page_tokens + token * shape.dim;
  }
};

const RungDescriptor kByteRung = {
    .name = "u8",
    .id = static_cast<RungId>(250),
    .lane = LaneType::kBytes,
    .has_own_spaces = true,
    .kernel_error = 1e-5,
    .strip_bytes =
        [](const RungDescriptor&, Part, const StripShape& shape) {
          return static_cast<size_t>(shape.page_tokens) * (8 + shape.dim);
        },
    .check_strip = [](const RungDescriptor& rung, Part, const StripShape& shape,
                      const std::byte* strip) -> Status {
      for (int i = 0; i < 2 * shape.page_tokens; ++i) {
        float value;
        std::memcpy(&value, strip + 4 * i, 4);
        if (!std::isfinite(value)) return DataLoss(std::string(rung.name) + ": not finite");
      }
      return Status();
    },
    .make = [](const RungDescriptor& rung,
               const RungBinding& binding) -> std::unique_ptr<const Rung> {
      return std::make_unique<const ByteRung>(rung, *binding.kernels);
    },
};

CacheShape Shape() {
  return ShapeOf({.layers = 2, .kv_heads = 2, .key_dim = 48, .value_dim = 32, .page = 16});
}

class NewRung : public testing::Test {
 protected:
  ScopedRung in_table_{kByteRung};
};

TEST_F(NewRung, IsAWordOfTheGrammar) {
  const Result<Plan> plan = ParsePlan("age=f16:32/u8");
  ASSERT_EQ(plan.status().ToString(), "ok");
  EXPECT_EQ(PrintPlan(*plan), "age=f16:32/u8");
  EXPECT_EQ(PrintPlanJson(*ParsePlan("u8")), R"({"kv":"u8"})");
  EXPECT_NE(ParsePlan("u9").status().message().find(
                "known: f32 f16 bf16 q8_0 q8_0r q4_0 q4_0r t4 t3 t2 u8"),
            std::string::npos);
}

TEST_F(NewRung, HasItsBytesAndItsLane) {
  EXPECT_EQ(RungBytesPerRow("u8", Part::kKey, 48, 16).value(), 56.0);
  const store::PartShape shape = PartShapeOf(kByteRung, Part::kKey, 48, 16);
  EXPECT_EQ(shape.Check().ToString(), "ok");
  EXPECT_EQ(shape.StripBytes(), kByteRung.StripBytes(Part::kKey, {0, 0, 48, 16}));
}

TEST_F(NewRung, StoresAndAttendsInACache) {
  for (const char* plan : {"u8", "k=u8,v=q8_0", "age=f16:32/u8", "u8,window=48",
                           "u8,pack=store,hot=0/0,bootstrap=16,step=16"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(Shape(), plan);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 100));
    ASSERT_OK(twin.Attend(0, id, 9));
    ASSERT_OK(twin.Compare());
  }
}

TEST_F(NewRung, IsSavedAndLoaded) {
  const std::string path = testing::TempDir() + "varve_new_rung.varve";
  const RetentionWork work(Shape(), 70);
  RetentionRun run(Shape(), "u8", work);
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 70);
  ASSERT_OK(run.cache->Save(path, {}));
  const std::unique_ptr<Cache> other = MakeCache(Shape(), "u8");
  const auto loaded = other->Load(path, {});
  ASSERT_OK(loaded.status());
  EXPECT_TRUE(ReadAll(*other, loaded->front().sequence) == ReadAll(*run.cache, id));
  std::remove(path.c_str());
}

TEST(NewRungGone, TheTableForgetsIt) {
  EXPECT_EQ(FindRung("u8"), nullptr);
  EXPECT_FALSE(ParsePlan("u8").ok());
}

}  // namespace cache_new_rung_test
}  // namespace varve
