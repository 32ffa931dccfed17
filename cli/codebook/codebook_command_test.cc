// `varve codebook` on a tiny model: from a text to a file, and what is refused.

#include "cli/codebook/codebook_command.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/codebook/codebook_error.h"
#include "cli/inspect/inspect_codebook.h"
#include "runtime/gguf/gguf_fingerprint.h"
#include "tests/cache_file_testing.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace codebook_command_test {

namespace fs = std::filesystem;

class CodebookCommand : public ::testing::Test {
 protected:
  CodebookCommand() {
    TinyModel().Write(Path("tiny.gguf"));
    std::string text;
    for (int i = 0; i < 300; ++i) text += "Tide " + std::to_string(i * i) + " came slowly in. ";
    Write("text.txt", text);
  }

  std::string Path(const std::string& name) const { return folder_.File(name); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }
  SampleOptions Sample() const {
    SampleOptions options;
    options.model = Path("tiny.gguf");
    options.text = Path("text.txt");
    options.tokens = 400;
    options.ctx = 100;
    options.threads = 2;
    return options;
  }
  CodebookTrainOptions Train() const {
    CodebookTrainOptions options;
    options.sample = Sample();
    options.output = Path("out.codebook");
    options.key_sizes = {"8x5", "4x4"};
    options.value_sizes = {"8x4"};
    return options;
  }
  static void ExpectRefused(const Status& status, const std::string& message) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }

  TempFolder folder_;
};

TEST(CodebookSamples, WindowsAreSpreadOverTheText) {
  EXPECT_EQ(WindowStarts(1000, 100, 1), (std::vector<size_t>{0}));
  EXPECT_EQ(WindowStarts(1000, 100, 4), (std::vector<size_t>{0, 300, 600, 900}));
  EXPECT_EQ(WindowStarts(100, 100, 2), (std::vector<size_t>{0, 0}));
  const std::vector<size_t> many = WindowStarts(size_t{1} << 40, 4096, 1 << 20);
  EXPECT_TRUE(std::is_sorted(many.begin(), many.end()));
  EXPECT_EQ(many.back(), (size_t{1} << 40) - 4096);
}

TEST_F(CodebookCommand, TrainsAFileThatSaysWhereItComesFrom) {
  ASSERT_TRUE(TrainToFile(Train()).ok());
  const auto codebook = LoadCodebook(Path("out.codebook"));
  ASSERT_TRUE(codebook.ok()) << codebook.status().message();
  const auto file = GgufFile::Open(Path("tiny.gguf"));
  EXPECT_EQ((*codebook)->model_fingerprint, ModelFingerprint(**file));
  EXPECT_EQ((*codebook)->model_name, "tiny.gguf");
  EXPECT_EQ((*codebook)->trained_on,
            "400 tokens of text.txt in windows of 100; 25 iterations, seed 1, k turned to "
            "principal axes");
  EXPECT_EQ((*codebook)->num_layers, 2);
  ASSERT_EQ((*codebook)->tables.size(), 3u);
  EXPECT_NE((*codebook)->Find(Part::kKey, 4, 4), nullptr);
  EXPECT_NE((*codebook)->Find(Part::kValue, 8, 4), nullptr);
  EXPECT_EQ((*codebook)->Find(Part::kValue, 8, 5), nullptr);
  EXPECT_TRUE(IsCodebookFile(Path("out.codebook")));
  EXPECT_FALSE(IsCodebookFile(Path("tiny.gguf")));
  EXPECT_FALSE(IsCodebookFile(Path("none")));
}

TEST_F(CodebookCommand, AFolderOfSamplesGivesTheSameFile) {
  CodebookTrainOptions options = Train();
  ASSERT_TRUE(TrainToFile(options).ok());
  ASSERT_TRUE(SampleToFolder({Sample(), Path("rows")}).ok());
  options.sample = {};
  options.sample.threads = 1;
  options.samples = Path("rows");
  options.output = Path("again.codebook");
  ASSERT_TRUE(TrainToFile(options).ok());
  EXPECT_EQ(ReadFileBytes(Path("again.codebook")), ReadFileBytes(Path("out.codebook")));
  // What is there already stays.
  ExpectRefused(SampleToFolder({Sample(), Path("rows")}), "is there already");
}

TEST_F(CodebookCommand, GrainsHaveTheirGroups) {
  const Result<KvSamples> samples = SampleModel(Sample());
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  const size_t heads = static_cast<size_t>(samples->num_kv_heads);
  std::vector<float> a(512), b(512);
  const SampleRows by_head(*samples, Part::kValue, CodebookGrain::kHead);
  const SampleRows by_layer(*samples, Part::kValue, CodebookGrain::kLayer);
  const SampleRows by_model(*samples, Part::kValue, CodebookGrain::kModel);
  EXPECT_EQ(by_head.NumRows(0), 400u);
  EXPECT_EQ(by_layer.NumRows(0), 400 * heads);
  EXPECT_EQ(by_model.NumRows(0), 800 * heads);
  for (const size_t token : {size_t{0}, size_t{250}, size_t{399}}) {
    for (size_t head = 0; head < heads; ++head) {
      by_head.ReadRow(static_cast<int>(heads + head), token, a.data());
      by_layer.ReadRow(1, token * heads + head, b.data());
      EXPECT_EQ(a, b);
      by_model.ReadRow(0, (400 + token) * heads + head, b.data());
      EXPECT_EQ(a, b);
    }
  }
  for (const char* grain : {"model", "layer"}) {
    CodebookTrainOptions options = Train();
    options.grain = grain;
    ASSERT_TRUE(TrainToFile(options).ok());
    const auto codebook = LoadCodebook(options.output);
    ASSERT_TRUE(codebook.ok());
    EXPECT_STREQ(CodebookGrainName((*codebook)->tables[0].grain), grain);
    const std::unique_ptr<Executor> executor = MakeThreadPool(2);
    const Result<double> error =
        RelativeError(**codebook, (*codebook)->tables[0], *samples, *executor);
    ASSERT_TRUE(error.ok()) << error.status().message();
    EXPECT_GT(*error, 1e-4);
    EXPECT_LT(*error, 0.5);
  }
}

TEST_F(CodebookCommand, ShortFormIsOneSizeForBothParts) {
  CodebookTrainOptions options = Train();
  options.key_sizes = options.value_sizes = {};
  options.num_subspaces = 8;
  options.bits = 4;
  options.rotate = "kv";
  options.opq = true;
  ASSERT_TRUE(TrainToFile(options).ok());
  const auto codebook = LoadCodebook(options.output);
  ASSERT_TRUE(codebook.ok());
  ASSERT_EQ((*codebook)->tables.size(), 2u);
  EXPECT_NE((*codebook)->Find(Part::kKey, 8, 4), nullptr);
  EXPECT_FALSE((*codebook)->Find(Part::kValue, 8, 4)->rotation.empty());
}

TEST_F(CodebookCommand, InspectTellsEverything) {
  ASSERT_TRUE(TrainToFile(Train()).ok());
  ASSERT_TRUE(SampleToFolder({Sample(), Path("rows")}).ok());
  const std::string json = Path("inspect.json");
  ASSERT_TRUE(InspectCodebook({Path("out.codebook"), Path("rows"), json, 1}).ok());
  std::ifstream file(json);
  const nlohmann::json row = nlohmann::json::parse(file)["rows"][0];
  EXPECT_EQ(row["model"], "tiny.gguf");
  ASSERT_EQ(row["tables"].size(), 3u);
  EXPECT_EQ(row["tables"][0]["rung"], "pq8x5");
  EXPECT_EQ(row["tables"][2]["part"], "v");
  // More bits, less error.
  EXPECT_LT(row["tables"][0]["error"], row["tables"][1]["error"]);
  const auto codebook = LoadCodebook(Path("out.codebook"));
  const std::string text = RenderCodebook("f", **codebook, {}, false);
  for (const char* part : {"tiny.gguf", "fingerprint", "text.txt", "pq4x4", "head", "bytes"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  Write("bad.codebook", "VCODE\r\n\x1A");
  ExpectRefused(InspectCodebook({Path("bad.codebook"), "", "", 1}), "version needs 4 bytes");
}

TEST_F(CodebookCommand, SaysWhatCannotBe) {
  const auto refused = [&](const auto& change, const std::string& message) {
    CodebookTrainOptions options = Train();
    change(options);
    ExpectRefused(TrainToFile(options), message);
  };
  using Options = CodebookTrainOptions;
  refused([](Options& o) { o.key_sizes = {"7x4"}; }, "size 7x4: M 7 does not divide head_dim");
  refused([](Options& o) { o.value_sizes = {"8x13"}; }, "size 8x13: bits 13 is not in 4 … 12");
  refused([](Options& o) { o.value_sizes = {"8*4"}; }, "--v \"8*4\": a size is MxB");
  refused([](Options& o) { o.key_sizes = {"8x4", "8x4"}; }, "--k 8x4: given twice");
  refused([](Options& o) { o.key_sizes = {"8x9"}; }, "has 400 rows < 512 centroids");
  refused([](Options& o) { o.key_sizes = o.value_sizes = {}; }, "no size");
  refused([](Options& o) { o.num_subspaces = o.bits = 8; }, "one of both");
  refused([](Options& o) { o.bits = 8; }, "-M and --nbits go together");
  refused([](Options& o) { o.grain = "token"; }, "--grain \"token\"");
  refused([](Options& o) { o.sample.text.clear(); }, "one of both");
  refused([](Options& o) { o.samples = "rows"; }, "one of both");
  refused([&](Options& o) { o.sample.text = Path("none"); }, "none");
  refused([](Options& o) { o.output = "/dev/full"; }, "-o \"/dev/full\": is not a file");
  refused([&](Options& o) { o.output = Path("no/such"); }, "cannot be written");
  Write("empty.txt", "");
  refused([&](Options& o) { o.sample.text = Path("empty.txt"); }, "the text is empty");
  EXPECT_FALSE(fs::exists(Path("out.codebook")));
}

TEST_F(CodebookCommand, BrokenSamplesAreRefused) {
  ASSERT_TRUE(SampleToFolder({Sample(), Path("rows")}).ok());
  ASSERT_TRUE(ReadSamples(Path("rows")).ok());
  EXPECT_EQ(ReadSamples(Path("none")).status().code(), StatusCode::kNotFound);
  const fs::path layer = fs::path(Path("rows")) / "layer_1";
  const std::string piece = (layer / "k_t0_100.bin").string();
  // A NaN in one row.
  std::vector<std::byte> bytes = ReadFileBytes(piece);
  const std::vector<std::byte> good = bytes;
  bytes[1] = std::byte{0x7E};
  WriteFileBytes(piece, bytes);
  CodebookTrainOptions options = Train();
  options.sample.text.clear();
  options.samples = Path("rows");
  ExpectRefused(TrainToFile(options), "k of layer 1, KV head 0: row 0 has a value that is not");
  bytes.pop_back();
  WriteFileBytes(piece, bytes);
  ExpectRefused(ReadSamples(Path("rows")).status(), "its meta says");
  WriteFileBytes(piece, good);
  std::ofstream(Path("rows") + "/samples.json") << "{\"model_fingerprint\": \"12\"}";
  ExpectRefused(ReadSamples(Path("rows")).status(), "model_fingerprint \"12\" is not 16 hex");
  fs::remove(Path("rows") + "/samples.json");
  EXPECT_EQ(ReadSamples(Path("rows"))->model_fingerprint, 0u);
  fs::remove(layer / "meta_t0_100.json");
  ExpectRefused(ReadSamples(Path("rows")).status(), "layer 1 has 300 tokens");
  fs::remove_all(fs::path(Path("rows")) / "layer_0");
  ExpectRefused(ReadSamples(Path("rows")).status(), "layer 0 is missing");
}

}  // namespace codebook_command_test
}  // namespace varve::cli
