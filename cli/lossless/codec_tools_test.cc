// dump, lossless and bench codec on the embedded model: what one writes the other reads.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_codec.h"
#include "cli/lossless/codec_runs.h"
#include "cli/lossless/dump_command.h"
#include "cli/lossless/kv_dump.h"
#include "cli/lossless/lossless_command.h"

namespace varve::cli {
namespace codec_tools_test {

namespace fs = std::filesystem;

class CodecTools : public testing::Test {
 protected:
  CodecTools() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              (std::string("codec_tools_") + info->name() + "_" + std::to_string(getpid()));
    fs::remove_all(folder_);
  }
  ~CodecTools() override { fs::remove_all(folder_); }

  Status Dump(int64_t ctx, int64_t chunk, const std::string& dtype) const {
    DumpOptions options;
    options.folder = folder_.string();
    options.ctx = ctx;
    options.chunk = chunk;
    options.dtype = dtype;
    return DumpToFiles(options);
  }
  Result<nlohmann::json> Evaluate(LosslessOptions options) const {
    options.folder = folder_.string();
    options.reps = 1;
    options.json = (folder_ / "rows.json").string();
    VARVE_RETURN_IF_ERROR(EvaluateLossless(options));
    std::ifstream file(options.json);
    return nlohmann::json::parse(file);
  }

  fs::path folder_;
};

// Random rows [tokens, 2 heads, 32].
DumpRows MakeRows(int64_t tokens) {
  DumpRows rows;
  rows.num_heads = 2;
  rows.head_dim = 32;
  rows.num_tokens = tokens;
  for (size_t i = 0; i < static_cast<size_t>(tokens) * rows.row_bytes(); ++i) {
    rows.bytes.push_back(static_cast<std::byte>(i * i % 251));
  }
  return rows;
}

TEST(CodecRun, SpansCoverAllTokens) {
  const std::vector<TokenSpan> spans = CutSpans(0, 500, 32, 192);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].count, 32);
  EXPECT_EQ(spans[1].begin, 32);
  EXPECT_EQ(spans[1].count, 192);
  EXPECT_EQ(spans[3].begin, 416);
  EXPECT_EQ(spans[3].count, 84);
  EXPECT_EQ(CutSpans(0, 64, 0, 64).size(), 1u);
  EXPECT_TRUE(CutSpans(5, 5, 0, 64).empty());
}

TEST(CodecRun, EveryCodecGivesItsBytesBack) {
  const DumpRows rows = MakeRows(200);
  for (const CodecKind kind : {CodecKind::kVarve, CodecKind::kVarveQuick, CodecKind::kVarveNoTables,
                               CodecKind::kGear, CodecKind::kZstd, CodecKind::kLz4}) {
    CodecRun run(kind, rows, CutSpans(0, 200, 0, 64));
    const Status status = run.Check();
    EXPECT_TRUE(status.ok()) << CodecName(kind) << ": " << status.message();
    EXPECT_EQ(run.raw_bytes(), rows.bytes.size());
    EXPECT_GT(run.ratio(), 0.8) << CodecName(kind);
    EXPECT_GE(run.TimeDecode(), 0.0);
  }
}

TEST(CodecRun, BoundOfKnownDistributions) {
  DumpRows rows = MakeRows(256);
  // High bytes: two values, one bit. Low bytes: all 256 values equally often, eight bits.
  for (size_t t = 0; t < 256; ++t) {
    for (size_t c = 0; c < 64; ++c) {
      rows.bytes[(t * 64 + c) * 2] = static_cast<std::byte>(t);
      rows.bytes[(t * 64 + c) * 2 + 1] = static_cast<std::byte>(t % 2 + c);
    }
  }
  EXPECT_NEAR(EntropyBound(rows), 16.0 / 9.0, 1e-6);
}

TEST_F(CodecTools, DumpIsReadBackAsItWasInTheCache) {
  ASSERT_TRUE(Dump(100, 64, "f16").ok());
  EXPECT_TRUE(fs::exists(folder_ / "layer_0" / "k_t0_64.bin"));
  EXPECT_TRUE(fs::exists(folder_ / "layer_0" / "meta_t64_100.json"));
  const Result<ReadDumpResult> dump = ReadDump(folder_.string());
  ASSERT_TRUE(dump.ok()) << dump.status().message();
  EXPECT_TRUE(dump->failures.empty());
  ASSERT_EQ(dump->pieces.size(), 16u);  // 8 layers, 2 pieces
  EXPECT_EQ(dump->pieces[1].meta.seq_start, 64);
  EXPECT_EQ(dump->pieces[1].keys.num_tokens, 36);
  // The same run once more, in memory.
  const Result<LoadedModel> model = LoadModel("");
  ASSERT_TRUE(model.ok());
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const auto rows =
      DumpModel(*model, *executor, *ReadTextTokens(*model, "", 100), store::LaneType::kF16, {});
  ASSERT_TRUE(rows.ok());
  const std::vector<std::byte>& keys = (*rows)[0].bytes;
  const std::vector<std::byte>& first = dump->pieces[0].keys.bytes;
  ASSERT_GT(keys.size(), first.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), keys.begin()));
  // What is there already stays.
  const Status again = Dump(100, 64, "f16");
  EXPECT_NE(again.message().find("is there already"), std::string::npos) << again.message();
}

TEST_F(CodecTools, LosslessHasARowPerModeLayerPartAndCodec) {
  ASSERT_TRUE(Dump(160, 96, "bf16").ok());
  const Result<nlohmann::json> report = Evaluate({});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const nlohmann::json& rows = (*report)["rows"];
  EXPECT_EQ(rows.size(), 4u * 8 * 2 * 2);
  for (const nlohmann::json& row : rows) {
    for (const char* key : {"mode", "part", "dtype", "layer", "ratio", "bound", "encode_gbps",
                            "decode_gbps", "codec"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row["dtype"], "bf16");
    EXPECT_GT(row["ratio"].get<double>(), 1.1) << row;
    EXPECT_LT(row["ratio"].get<double>(), 4.0) << row;
  }
}

TEST_F(CodecTools, StrictSkipsF32AndWithoutItIsRounded) {
  ASSERT_TRUE(Dump(64, 64, "f32").ok());
  LosslessOptions options;
  options.modes = {"aggregate"};
  const Result<nlohmann::json> rounded = Evaluate(options);
  ASSERT_TRUE(rounded.ok()) << rounded.status().message();
  EXPECT_EQ((*rounded)["rows"][0]["dtype"], "f16");
  options.strict = true;
  const Status strict = Evaluate(options).status();
  EXPECT_EQ(strict.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(strict.message().find("0 failed, 8 skipped"), std::string::npos) << strict.message();
}

TEST_F(CodecTools, BrokenEntriesAreCountedAndNotAveraged) {
  ASSERT_TRUE(Dump(64, 32, "f16").ok());
  fs::resize_file(folder_ / "layer_0" / "k_t0_32.bin", 100);
  fs::remove(folder_ / "layer_1" / "v_t32_64.bin");
  std::ofstream(folder_ / "layer_2" / "meta_t0_32.json") << "{\"layer_id\": 2";
  const Result<ReadDumpResult> dump = ReadDump(folder_.string());
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->pieces.size(), 13u);
  ASSERT_EQ(dump->failures.size(), 3u);
  EXPECT_NE(dump->failures[0].find("100 bytes, its meta says"), std::string::npos)
      << dump->failures[0];
  LosslessOptions options;
  options.modes = {"aggregate"};
  const Result<nlohmann::json> report = Evaluate(options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ((*report)["rows"][0]["tokens"], 32);
  EXPECT_EQ(ReadDump((folder_ / "none").string()).status().code(), StatusCode::kNotFound);
}

TEST_F(CodecTools, DumpSaysWhatCannotBe) {
  EXPECT_NE(Dump(10000000, 64, "f16").message().find("--ctx 10000000"), std::string::npos);
  EXPECT_NE(Dump(64, 64, "q8_0").message().find("--dtype \"q8_0\""), std::string::npos);
}

TEST_F(CodecTools, BenchHasTheBaselinesAndANoiseRow) {
  fs::create_directories(folder_);
  BenchCodecOptions options;
  options.ctx = 64;
  options.reps = 1;
  options.dtypes = {"f16"};
  options.json = (folder_ / "bench.json").string();
  const Status status = BenchCodec(options);
  ASSERT_TRUE(status.ok()) << status.message();
  std::ifstream file(options.json);
  const nlohmann::json report = nlohmann::json::parse(file);
  ASSERT_EQ(report["rows"].size(), 8u * 2 * 7);
  EXPECT_EQ(report["rows"][0]["mode"], "zstd-3");
  EXPECT_EQ(report["rows"][1]["role"], "noise");
  EXPECT_EQ(report["rows"][6]["mode"], "varve");
  options.dtypes = {"f64"};
  EXPECT_EQ(BenchCodec(options).code(), StatusCode::kInvalidArgument);
}

}  // namespace codec_tools_test
}  // namespace varve::cli
