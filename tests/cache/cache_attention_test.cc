// Attention on stored bytes is softmax attention over the rows that ReadRows gives, for every rung,
// shape and state of the table. CacheTwin compares each call with double precision.

#include <gtest/gtest.h>

#include <cstdint>

#include <string>
#include <vector>

#include "kernels/kernel_testing.h"
#include "tests/cache_testing.h"

namespace varve {
namespace cache_attention_test {

const char* const kRungs[] = {"f32",   "f16",   "bf16", "q8_0", "q4_0",
                              "q8_0r", "q4_0r", "t4",   "t3",   "t2"};
const char* const kFloats[] = {"f32", "f16", "bf16"};

// Prefill with a ragged end, then single tokens, then queries of earlier positions outside a step.
void CheckGrowth(CacheTwin& twin, int prompt) {
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, prompt));
  for (int i = 0; i < 3; ++i) ASSERT_OK(twin.Grow(id, 1));
  ASSERT_OK(twin.Attend(0, id, 1));
  ASSERT_OK(twin.Attend(0, id, 9));
}

TEST(CacheAttention, EveryRungAtEveryUsualHeadDim) {
  for (const char* rung : kRungs) {
    for (int dim : {64, 96, 128, 256}) {
      SCOPED_TRACE(std::string(rung) + " " + std::to_string(dim));
      CacheTwin twin(ShapeOf({.kv_heads = 1, .key_dim = dim, .value_dim = dim}),
                     std::string(rung) + ",exact=0");
      CheckGrowth(twin, 37);
    }
  }
}

TEST(CacheAttention, FloatRungsAtHeadDimsThatAreMultiplesOf16) {
  for (const char* rung : kFloats) {
    for (int dim : {16, 80, 112}) {
      SCOPED_TRACE(std::string(rung) + " " + std::to_string(dim));
      CacheTwin twin(ShapeOf({.kv_heads = 1, .key_dim = dim, .value_dim = dim}),
                     std::string(rung) + ",open_rung=" + rung);
      CheckGrowth(twin, 37);
    }
  }
}

TEST(CacheAttention, KeysAndValuesMixFreely) {
  for (const char* key : kRungs) {
    for (const char* value : kRungs) {
      SCOPED_TRACE(std::string(key) + "/" + value);
      CacheTwin twin(ShapeOf({.kv_heads = 1}), std::string("exact=0,k=") + key + ",v=" + value);
      CheckGrowth(twin, 35);
    }
  }
}

TEST(CacheAttention, GroupsOfOneToEightQueryHeads) {
  for (const char* rung : {"f16", "q8_0", "q4_0r,exact=0", "t4,exact=0"}) {
    for (int group = 1; group <= 8; ++group) {
      SCOPED_TRACE(std::string(rung) + " " + std::to_string(group));
      CacheTwin twin(ShapeOf({.group = group}), rung);
      CheckGrowth(twin, 35);
    }
  }
}

TEST(CacheAttention, KeyAndValueDimensionsDiffer) {
  for (const char* rung : kRungs) {
    for (const auto& [key_dim, value_dim] : {std::pair{192, 128}, {32, 256}, {96, 64}}) {
      SCOPED_TRACE(std::string(rung) + " " + std::to_string(key_dim));
      CacheTwin twin(ShapeOf({.kv_heads = 3, .key_dim = key_dim, .value_dim = value_dim}), rung);
      CheckGrowth(twin, 35);
    }
  }
}

TEST(CacheAttention, EveryPageSizeAndEveryFillOfThePage) {
  for (int page : {16, 32, 64, 128}) {
    for (const char* rung : {"f16", "q4_0,exact=0"}) {
      SCOPED_TRACE(std::string(rung) + " " + std::to_string(page));
      CacheTwin twin(ShapeOf({.kv_heads = 1, .key_dim = 32, .value_dim = 32, .page = page}), rung);
      const SequenceId id = twin.Create();
      ASSERT_OK(twin.Grow(id, page - 3));
      for (int i = 0; i < page + 6; ++i) ASSERT_OK(twin.Grow(id, 1));
    }
  }
}

TEST(CacheAttention, ManyPagesAndSplits) {
  for (const char* plan :
       {"f16", "q8_0", "q4_0r,exact=0", "k=q8_0r,v=f16", "age=f16:100/q8_0:300/q4_0r,exact=0",
        "t4,exact=0", "k=t3,v=t2,exact=0", "age=f16:100/t4:300/t2,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(ShapeOf({.kv_heads = 1, .key_dim = 32, .value_dim = 32}), plan);
    CheckGrowth(twin, 16 * 40 + 5);
  }
}

TEST(CacheAttention, WidePrefillTakesAHeadAtOnce) {
  for (const char* plan : {"f16", "q8_0", "t3,exact=0", "age=f16:50/t4:100/t2,exact=0",
                           "age=f16:50/q8_0:100/q4_0r,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(ShapeOf({.group = 8, .key_dim = 32, .value_dim = 32, .page = 64}), plan);
    CheckGrowth(twin, 300);
  }
}

TEST(CacheAttention, EveryInstructionSet) {
  for (const Kernels* kernels : AvailableKernels()) {
    const ScopedKernels scoped(*kernels);
    for (const char* rung : kRungs) {
      SCOPED_TRACE(std::string(kernels->name) + " " + rung);
      CacheTwin twin(ShapeOf({.group = 3, .key_dim = 96, .value_dim = 64, .page = 32}), rung);
      CheckGrowth(twin, 75);
    }
  }
}

TEST(CacheAttention, RaggedBatchesOfSequencesInOneCall) {
  for (const char* plan : {"q8_0", "age=f16:20/q4_0,open=7,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(ShapeOf({.layers = 2, .key_dim = 32, .value_dim = 64}), plan);
    const SequenceId a = twin.Create(), b = twin.Create(), c = twin.Create();
    ASSERT_OK(twin.Grow(a, 300));
    ASSERT_OK(twin.Grow(b, 17));
    for (int step = 0; step < 25; ++step) {
      const std::vector<StepEntry> entries = {{c, step % 3 == 0 ? 45 : 1}, {a, 1}, {b, 1}};
      ASSERT_OK(twin.Step(entries));
    }
  }
}

TEST(CacheAttention, ForkedSequencesDiverge) {
  CacheTwin twin(ShapeOf({.layers = 2}), "q8_0,open=20");
  const SequenceId trunk = twin.Create();
  ASSERT_OK(twin.Grow(trunk, 60));
  const SequenceId left = *twin.Fork(trunk), right = *twin.Fork(trunk);
  for (int step = 0; step < 40; ++step) {
    const std::vector<StepEntry> entries = {{left, 1}, {right, 1}};
    ASSERT_OK(twin.Step(entries));
    if (step % 8 != 0) continue;
    ASSERT_OK(twin.Grow(trunk, 3));
  }
}

TEST(CacheAttention, DeadRowsAreNotSeen) {
  for (const char* rung : kRungs) {
    SCOPED_TRACE(rung);
    CacheTwin twin(ShapeOf({}), rung);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 75));
    ASSERT_OK(twin.RemoveRange(id, 3, 4));
    ASSERT_OK(twin.RemoveRange(id, 14, 35));
    ASSERT_OK(twin.RemoveRange(id, 70, 73));
    ASSERT_OK(twin.Attend(0, id, 1));
    ASSERT_OK(twin.Attend(0, id, 40));
    ASSERT_OK(twin.Grow(id, 20));
  }
}

TEST(CacheAttention, ScaleSoftCapWindowAndFullVisibility) {
  for (const char* rung : {"f16", "q8_0", "q4_0r,exact=0", "t4,exact=0"}) {
    CacheTwin twin(ShapeOf({}), rung);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 90));
    for (const AttendOptions& options :
         {AttendOptions{.scale = 0.02f}, AttendOptions{.soft_cap = 1.5f},
          AttendOptions{.window = 1}, AttendOptions{.window = 16}, AttendOptions{.window = 37},
          AttendOptions{.window = 5000}, AttendOptions{.causal = false},
          AttendOptions{.window = 20, .causal = false},
          AttendOptions{.scale = -0.1f, .soft_cap = 2.0f, .window = 33}}) {
      SCOPED_TRACE(std::string(rung) + " window " + std::to_string(options.window));
      ASSERT_OK(twin.Attend(0, id, 1, options));
      ASSERT_OK(twin.Attend(0, id, 60, options));
      ASSERT_OK(twin.Grow(id, 2, options));
    }
  }
}

TEST(CacheAttention, CrossAttentionMayHaveMoreQueriesThanRows) {
  CacheTwin twin(ShapeOf({}), "q8_0");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 20));
  EXPECT_OK(twin.Attend(0, id, 100, {.causal = false}));
  // Nor does a window at the end of the range overflow (the reference stands this much).
  EXPECT_OK(twin.Attend(0, id, 100, {.window = INT64_MAX - 200, .causal = false}));
}

TEST(CacheAttention, RequestsLongerThanOnePassAreTakenInPieces) {
  CacheTwin twin(ShapeOf({.kv_heads = 1, .group = 1}), "q8_0");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 40));
  EXPECT_OK(twin.Attend(0, id, 2500, {.causal = false}));
}

}  // namespace cache_attention_test
}  // namespace varve
