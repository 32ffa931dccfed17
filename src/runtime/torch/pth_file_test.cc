// Files of torch.save by hand: tensors that are what they say, and those that are not.

#include "runtime/torch/pth_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/torch/compressor_convert.h"
#include "tests/pth_testing.h"

namespace varve {
namespace pth_file_test {

using Bytes = std::vector<std::byte>;
using Extents = std::vector<int64_t>;

Bytes Floats(size_t count, float first = 0) {
  Bytes bytes(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const float value = first + static_cast<float>(i) / 64;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(value));
  }
  return bytes;
}

// {"w": tensor} with a storage of 12 f32.
struct TensorSpec {
  std::string type = "FloatStorage";
  std::string key = "0";
  int64_t count = 12;
  int64_t offset = 0;
  Extents shape = {3, 4};
  Extents strides = {4, 1};
};

Bytes OneTensor(const TensorSpec& spec) {
  PickleBuilder builder;
  builder.Op("}").Text("w");
  builder.Tensor(spec.type, spec.key, spec.count, spec.offset, spec.shape, spec.strides).Op("s");
  return BuildPth(builder.Build(), {{"0", Floats(12)}});
}

Status StatusOf(const TensorSpec& spec) {
  const Bytes bytes = OneTensor(spec);
  VARVE_ASSIGN_OR_RETURN(PthFile file, PthFile::Open(bytes, "f"));
  const PickleValue* value = file.pickle().Find(*file.FindDict({}), "w");
  return file.Tensor(*value).status();
}

void ExpectRefused(const TensorSpec& spec, const std::string& message,
                   StatusCode code = StatusCode::kDataLoss) {
  const Status status = StatusOf(spec);
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), "f: " + message);
}

TEST(PthFile, ViewsLieWhereTheySay) {
  TensorSpec spec;
  spec.offset = 1;
  spec.shape = {2, 3};
  spec.strides = {1, 4};
  const Bytes bytes = OneTensor(spec);
  Result<PthFile> file = PthFile::Open(bytes, "f");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tensor = file->Tensor(*file->pickle().Find(*file->FindDict({}), "w"));
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_EQ(tensor->shape, (Extents{2, 3}));
  EXPECT_EQ(tensor->At(tensor->offset + 1 + 2 * 4), 10.0 / 64);
}

TEST(PthFile, TensorsThatLeaveTheirStorageAreRefused) {
  EXPECT_TRUE(StatusOf({}).ok());
  const std::string out = " and its strides lead out of a storage of 12 numbers";
  TensorSpec spec;
  spec.offset = 1;
  ExpectRefused(spec, "offset 1" + out);
  spec.offset = -1;
  ExpectRefused(spec, "offset -1" + out);
  spec.offset = 0x7FFFFFFFFFFFFFFF;
  ExpectRefused(spec, "offset 9223372036854775807" + out);
  spec = {};
  spec.strides = {0x7FFFFFFFFFFFFFFF, 1};
  ExpectRefused(spec, "offset 0" + out);
  spec.strides = {5, 1};
  ExpectRefused(spec, "offset 0" + out);
  spec = {};
  spec.shape = {4, 4};
  ExpectRefused(spec, "offset 0" + out);
  spec.shape = {-3, 4};
  ExpectRefused(spec, "size -3 of dimension 0 is not in 0 … 2147483647");
  spec.shape = {3, 0x80000000};
  ExpectRefused(spec, "size 2147483648 of dimension 1 is not in 0 … 2147483647");
  spec = {};
  spec.strides = {4, -1};
  ExpectRefused(spec, "stride -1 of dimension 1 < 0");
  spec.strides = {4};
  ExpectRefused(spec, "tensor of 2 dimensions (limit 8) with 1 strides");
  spec.shape = spec.strides = Extents(9, 1);
  ExpectRefused(spec, "tensor of 9 dimensions (limit 8) with 9 strides");
}

TEST(PthFile, StoragesThatLieAreRefused) {
  TensorSpec spec;
  spec.count = 13;
  ExpectRefused(spec, "its storage has 48 bytes, not 13 numbers of 4 bytes");
  spec.count = -12;
  ExpectRefused(spec, "its storage has 48 bytes, not -12 numbers of 4 bytes");
  spec.count = 0x400000000000000C;  // 12 numbers again, times 4 in 64 bits
  ExpectRefused(spec, "its storage has 48 bytes, not 4611686018427387916 numbers of 4 bytes");
  spec = {};
  spec.type = "DoubleStorage";
  ExpectRefused(spec, "its storage has 48 bytes, not 12 numbers of 8 bytes");
  spec = {};
  spec.key = "../data.pkl";
  ExpectRefused(spec, "its storage is not in the zip");
  spec = {};
  spec.type = "LongStorage";
  ExpectRefused(spec, "is of a LongStorage, not of f16, bf16, f32 or f64",
                StatusCode::kInvalidArgument);
}

TEST(PthFile, WhatIsNoPthIsNamed) {
  const auto message = [](const Bytes& bytes) {
    return PthFile::Open(bytes, "f").status().message();
  };
  ZipPart part;
  part.name = "data.pkl";
  EXPECT_EQ(message(BuildZip({part})),
            "f: is no file of torch.save: a zip without an entry FOLDER/data.pkl");
  std::vector<ZipPart> parts(2);
  parts[0].name = "a/data.pkl";
  parts[1].name = "b/data.pkl";
  EXPECT_EQ(message(BuildZip(parts)), "f: has two entries FOLDER/data.pkl");
  const Bytes none = PickleBuilder().Op("N").Build();
  EXPECT_EQ(message(BuildPth(none, {}, "big")), "f: its numbers are big-endian");
  EXPECT_EQ(message(BuildPth(none, {}, "middle")), "f: its byteorder is neither little nor big");
  EXPECT_TRUE(PthFile::Open(BuildPth(none, {}, ""), "f").ok());
  EXPECT_EQ(message(ToBytes("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.\x80\x02M")),
            "f: is in the form of PyTorch before 1.6, no zip; torch.save it again");
  EXPECT_EQ(message(BuildPth(PickleBuilder().Global("os", "system").Build(), {})),
            "f: data.pkl: at 2: os.system is not allowed: only tensors, dicts, lists, text and "
            "numbers are");
}

// A state dict with the given tensors.
Bytes StateDict(const std::vector<std::pair<std::string, TensorSpec>>& tensors,
                const Bytes& storage) {
  PickleBuilder builder;
  builder.Op("}(");
  for (const auto& [key, spec] : tensors) {
    builder.Text(key);
    builder.Tensor(spec.type, spec.key, spec.count, spec.offset, spec.shape, spec.strides);
  }
  return BuildPth(builder.Op("u").Build(), {{"0", storage}});
}

// One layer of 16 x 32, 16 x 16, 16 x 16, all in one storage of 512 f32.
std::vector<std::pair<std::string, TensorSpec>> SmallTensors() {
  std::vector<std::pair<std::string, TensorSpec>> tensors;
  for (const char* part : {"compress_tk", "compress_tv"}) {
    for (const int slot : {0, 3, 6}) {
      TensorSpec spec;
      spec.count = 512;
      spec.shape = {16, slot == 0 ? 32 : 16};
      spec.strides = {spec.shape[1], 1};
      tensors.emplace_back(std::string(part) + ".0." + std::to_string(slot) + ".weight", spec);
    }
  }
  return tensors;
}

std::string ConvertMessage(const Bytes& bytes, const CompressorConvertOptions& options = {}) {
  return ConvertPthCompressor(bytes, "f", options).status().message();
}

TEST(PthFile, StateDictsOfACompressorAreComplete) {
  const Bytes storage = Floats(512);
  auto tensors = SmallTensors();
  const auto converted = ConvertPthCompressor(StateDict(tensors, storage), "f", {});
  ASSERT_TRUE(converted.ok()) << converted.status().message();
  EXPECT_EQ(converted->compressor.factor, 2);

  for (size_t i = 0; i < tensors.size(); ++i) {
    auto fewer = tensors;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_EQ(ConvertMessage(StateDict(fewer, storage)), "f: " + tensors[i].first + " is missing");
  }
  auto more = tensors;
  more.emplace_back("compress_tv.1.3.weight", tensors[1].second);
  EXPECT_EQ(ConvertMessage(StateDict(more, storage)), "f: compress_tk.1.0.weight is missing");
  more.back().first = "compress_iv.0.0.weight";
  EXPECT_EQ(ConvertMessage(StateDict(more, storage)), "f: compress_ik.0.0.weight is missing");
  more.back().first = "compress_tk.1024.0.weight";
  EXPECT_EQ(ConvertMessage(StateDict(more, storage)),
            "f: compress_tk.1024.0.weight: layer 1024 > 1023");
  // Nothing of these is a weight.
  for (const char* key : {"compress_tk.00.0.weight", "compress_tk.0.1.weight", "compress_tk.0.0",
                          "compress_tk.0.0.weights", "compress_xk.0.0.weight", "", "..."}) {
    more.back().first = key;
    const auto other = ConvertPthCompressor(StateDict(more, storage), "f", {});
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_EQ(other->ignored, std::vector<std::string>{key});
  }
  more.back().first = std::string(257, 'a');
  EXPECT_TRUE(ConvertPthCompressor(StateDict(more, storage), "f", {})->ignored.empty());
  EXPECT_EQ(ConvertMessage(StateDict({}, storage)),
            "f: has no key like compress_tk.0.0.weight and no dict compressor; its state dict has "
            "0 keys");
  EXPECT_EQ(ConvertMessage(BuildPth(PickleBuilder().Op("]").Build(), {})),
            "f: holds a list, not a dict");
}

TEST(PthFile, ShapesAndNumbersOfACompressorAreChecked) {
  const Bytes storage = Floats(512);
  const auto with = [&](size_t index, Extents shape, Extents strides) {
    auto tensors = SmallTensors();
    tensors[index].second.shape = std::move(shape);
    tensors[index].second.strides = std::move(strides);
    return ConvertMessage(StateDict(tensors, storage));
  };
  EXPECT_EQ(with(1, {256}, {1}), "f: compress_tk.0.3.weight has 1 dimensions, not 2");
  EXPECT_EQ(with(1, {0, 16}, {16, 1}), "f: compress_tk.0.3.weight: size 0 is not in 1 … 32768");
  EXPECT_EQ(with(1, {16, 8}, {8, 1}),
            "f: layer 0: compress_tk.3: cols 8 is not 16, the rows of the block before");
  EXPECT_EQ(
      with(2, {24, 16}, {16, 1}),
      "f: compression factor 1 * head_dim 24 is not 32, the inputs of compress_tk.0.0.weight");
  // A small file cannot ask for much memory: strides of 0 repeat numbers.
  EXPECT_EQ(with(1, {32768, 32768}, {0, 0}),
            "f: compress_tk.0.3.weight: tensors share storages: more than 64 numbers per byte of "
            "the file");
  auto tensors = SmallTensors();
  TensorSpec bias;
  bias.count = 512;
  bias.shape = {15};
  bias.strides = {1};
  tensors.emplace_back("compress_tk.0.0.bias", bias);
  EXPECT_EQ(ConvertMessage(StateDict(tensors, storage)),
            "f: compress_tk.0.0.bias has 15 numbers, not 16 as compress_tk.0.0.weight has rows");
  tensors = SmallTensors();
  const Bytes large = Floats(512, 65520);
  EXPECT_EQ(ConvertMessage(StateDict(tensors, large)),
            "f: compress_tk.0.0.weight holds 65520, which f16 has no room for");
  CompressorConvertOptions brain;
  brain.dtype = CompressorDtype::kBF16;
  EXPECT_EQ(ConvertMessage(StateDict(tensors, large), brain), "");
  EXPECT_EQ(ConvertMessage(StateDict(tensors, Floats(512, NAN)), brain),
            "f: compress_tk.0.0.weight holds nan, not finite");
  tensors[3].second.offset = 1;
  EXPECT_EQ(ConvertMessage(StateDict(tensors, storage)),
            "f: compress_tv.0.0.weight: offset 1 and its strides lead out of a storage of 512 "
            "numbers");
}

TEST(PthFile, AWeightThatIsNoTensorIsNamed) {
  PickleBuilder builder;
  builder.Op("}").Text("compressor").Op("}").Text("compress_tk.0.0.weight").Op("Ns");
  builder.Text("compress_tk.0.6.weight").Op("Nss");
  EXPECT_EQ(ConvertMessage(BuildPth(builder.Build(), {})),
            "f: compress_tk.0.0.weight: is None, not a tensor");
}

}  // namespace pth_file_test
}  // namespace varve
