#include "rungs/rung_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "rungs/rung.h"

namespace varve {
namespace rung_table_test {

TEST(RungTable, KnowsItsNamesInOrderOfPrecision) {
  EXPECT_EQ(KnownRungNames(),
            "f32 f16 bf16 q8_0 q8_0r q4_0 q4_0r t4 t3 t2 pqMxB (B 4 to 12) pq4 pq3 pq2");
  for (const std::string_view name : RungNames()) {
    EXPECT_TRUE(IsRungName(name)) << name;
    const RungDescriptor* rung = FindRung(name, 128);
    ASSERT_NE(rung, nullptr) << name;
    EXPECT_EQ(FindRung(rung->name), rung) << name;
  }
  for (const char* name : {"", "f64", "q8", "q8_0 ", "Q8_0", "q8_0rr", "pq", "pq0x8", "pq64x13"}) {
    EXPECT_EQ(FindRung(name, 128), nullptr) << name;
    EXPECT_FALSE(IsRungName(name)) << name;
  }
}

TEST(RungTable, AnAliasMeansSomethingForRowsOfALength) {
  EXPECT_TRUE(IsRungName("pq4"));
  EXPECT_EQ(FindRung("pq4"), nullptr);
  EXPECT_EQ(FindRung("pq4", 128)->name, "pq64x8");
  EXPECT_EQ(FindRung("pq2", 64), FindRung("pq32x4"));
}

TEST(RungTable, EveryRowIsFilledIn) {
  std::set<RungId> ids;
  for (const std::string_view name : RungNames()) {
    const RungDescriptor* rung = FindRung(name, 128);
    ASSERT_NE(rung->strip_bytes, nullptr) << name;
    ASSERT_NE(rung->make, nullptr) << name;
    EXPECT_GT(rung->kernel_error, 0) << name;
    EXPECT_TRUE(rung->CheckDim(128).ok()) << name;
    EXPECT_FALSE(rung->CheckDim(rung->dim_multiple - 1).ok()) << name;
    if (!rung->needs_codebook()) {
      EXPECT_TRUE(ids.insert(rung->id).second) << name << " has another rung's id";
      EXPECT_EQ(&rung->Make({&ActiveKernels(), nullptr})->descriptor(), rung) << name;
    }
  }
}

TEST(RungTable, ExpectedErrorGrowsAsBitsShrink) {
  const StripShape shape{0, 0, 128, 64};
  double error = 0;
  uint64_t bytes = FindRung("f32")->StripBytes(Part::kKey, shape);
  for (const char* name : {"f16", "q8_0", "q4_0", "pq4", "pq3", "pq2"}) {
    const RungDescriptor* rung = FindRung(name, 128);
    EXPECT_GE(rung->ExpectedError(shape), error) << name;
    EXPECT_LT(rung->ExpectedError(shape), 1) << name;
    EXPECT_LT(rung->StripBytes(Part::kKey, shape), bytes) << name;
    error = rung->ExpectedError(shape);
    bytes = rung->StripBytes(Part::kKey, shape);
  }
  EXPECT_EQ(FindRung("bf16")->ExpectedError(shape), 0);
  EXPECT_DOUBLE_EQ(FindRung("q4_0")->ExpectedError(shape), 2.1 / 8 * 2.1 / 8 / 12);
}

TEST(RungTable, OpenPagesTakeTheRungsThatCanAppend) {
  EXPECT_EQ(AppendableRungNames(), (std::vector<std::string_view>{"f32", "f16", "bf16"}));
}

}  // namespace rung_table_test
}  // namespace varve
