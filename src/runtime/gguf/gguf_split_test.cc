// Models in several files.

#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/split_name.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace gguf_split_test {

using FilePtr = std::shared_ptr<const GgufFile>;

GgufBuilder Part(int64_t number, int64_t count, int64_t num_tensors) {
  return GgufBuilder()
      .Int("split.no", number, GgufType::kU16)
      .Int("split.count", count, GgufType::kU16)
      .Int("split.tensors.count", num_tensors, GgufType::kI32);
}

// Three parts that hold the tensors a, b, c and d.
class GgufSplit : public testing::Test {
 protected:
  GgufSplit() {
    Part(0, 3, 4).String("general.name", "whole").Write(Path(1));
    Part(1, 3, 4).TensorF32("a", {1}, {1}).TensorF32("b", {1}, {2}).Write(Path(2));
    Part(2, 3, 4).Alignment(64).TensorF32("c", {1}, {3}).TensorF32("d", {1}, {4}).Write(Path(3));
  }
  std::string Path(int number) const { return PartName(folder_.File("m"), number, 3); }
  std::string Error() const { return GgufFile::Open(Path(1)).status().message(); }

  TempFolder folder_;
};

TEST(SplitName, TakesTheNamesThatSplittersWrite) {
  const std::optional<SplitName> name = ParseSplitName("dir/m-x-00002-of-00010.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "dir/m-x");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 10);
  EXPECT_EQ(PartName(name->prefix, 10, 10), "dir/m-x-00010-of-00010.gguf");
  for (const char* other :
       {"", ".gguf", "m.gguf", "m-00001-of-00003", "m-0001-of-00003.gguf", "m-00004-of-00003.gguf",
        "m-00000-of-00003.gguf", "m-+0001-of-00003.gguf", "m-00001-of-000 3.gguf",
        "m00001-of-00003.gguf", "-of-00003.gguf"}) {
    EXPECT_FALSE(ParseSplitName(other).has_value()) << other;
  }
}

TEST_F(GgufSplit, TheFirstPartOpensAll) {
  Result<FilePtr> file = GgufFile::Open(Path(1));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(*(*file)->GetString("general.name"), "whole");
  ASSERT_EQ((*file)->tensors().size(), 4u);
  float value = 0;
  std::memcpy(&value, (*file)->FindTensor("d")->data.data(), sizeof(value));
  EXPECT_EQ(value, 4);
  uint64_t bytes = 0;
  for (int i = 1; i <= 3; ++i) bytes += std::filesystem::file_size(Path(i));
  EXPECT_EQ((*file)->file_bytes(), bytes);
}

TEST_F(GgufSplit, AnotherPartSaysWhichOneToOpen) {
  EXPECT_EQ(GgufFile::Open(Path(2)).status().message(),
            Path(2) + ": part 2 of 3; open the first part, " + Path(1));
}

TEST_F(GgufSplit, AMissingPartIsNamed) {
  std::filesystem::remove(Path(3));
  EXPECT_EQ(GgufFile::Open(Path(1)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Error(), "part 3 of 3: " + Path(3) + ": no such file");
}

TEST_F(GgufSplit, ADamagedPartIsNamed) {
  WriteBytes(Path(2), {});
  EXPECT_EQ(Error(), "part 2 of 3: " + Path(2) + ": is empty");
}

TEST_F(GgufSplit, APartInAnothersPlaceIsNamed) {
  std::filesystem::copy_file(Path(2), Path(3), std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Error(), Path(3) + ": split.no 1, its name says 2");
}

TEST_F(GgufSplit, APartOfAnotherSplitIsNamed) {
  Part(1, 4, 4).Write(Path(2));
  EXPECT_EQ(Error(), Path(2) + ": split.count 4, the first part says 3");
  Part(1, 3, 5).Write(Path(2));
  EXPECT_EQ(Error(), Path(2) + ": split.tensors.count 5, the first part says 4");
  GgufBuilder().Write(Path(2));
  EXPECT_EQ(Error(), Path(2) + ": split.count 1, the first part says 3");
}

TEST_F(GgufSplit, TheNumberOfTensorsMustBeRight) {
  Part(1, 3, 4).TensorF32("a", {1}, {1}).Write(Path(2));
  EXPECT_EQ(Error(), Path(1) + ": the 3 parts hold 3 tensors, split.tensors.count says 4");
}

TEST_F(GgufSplit, ATensorIsInOnePartOnly) {
  Part(1, 3, 4).TensorF32("a", {1}, {1}).TensorF32("d", {1}, {2}).Write(Path(2));
  EXPECT_EQ(Error(), Path(1) + ": tensor \"d\" is there more than once");
}

TEST_F(GgufSplit, TheFirstPartNeedsItsName) {
  const std::string renamed = folder_.File("renamed.gguf");
  std::filesystem::rename(Path(1), renamed);
  EXPECT_EQ(GgufFile::Open(renamed).status().message(),
            renamed +
                ": the first of 3 parts (split.count); its name must end in -00001-of-00003.gguf "
                "for the others to be found");
}

TEST_F(GgufSplit, NumbersOutOfRangeAreRefused) {
  Part(3, 3, 4).Write(Path(1));
  EXPECT_EQ(Error(), Path(1) + ": key \"split.no\": u16 3, expected an integer from 0 to 2");
  Part(0, 3, -1).Write(Path(1));
  EXPECT_TRUE(Error().starts_with(Path(1) + ": key \"split.tensors.count\": i32 -1, expected"))
      << Error();
  GgufBuilder().Int("split.count", 100000).Write(Path(1));
  EXPECT_EQ(Error(),
            Path(1) + ": key \"split.count\": u32 100000, expected an integer from 0 to 99999");
}

TEST_F(GgufSplit, MemoryHoldsNoSplitFile) {
  const std::vector<std::byte> bytes = Part(0, 3, 4).Build();
  EXPECT_EQ(GgufFile::FromMemory(bytes, "m").status().message(),
            "m: part 1 of 3; a split file must be opened by its path");
  const std::vector<std::byte> whole = Part(0, 1, 0).Build();
  EXPECT_TRUE(GgufFile::FromMemory(whole, "m").ok());
}

}  // namespace gguf_split_test
}  // namespace varve
