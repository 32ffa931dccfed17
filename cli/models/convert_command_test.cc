#include "cli/models/convert_command.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "cli/inspect/inspect_whisper.h"
#include "cli/models/model_testing.h"
#include "tests/gguf_testing.h"
#include "tests/whisper_files.h"
#include "tests/whisper_testing.h"

namespace varve::cli {
namespace convert_command_test {

class ConvertCommand : public testing::Test {
 protected:
  void SetUp() override { WriteBytes(options_.input, WhisperPtParts(model_).Build()); }
  // What it said on stdout.
  std::string Convert() {
    testing::internal::CaptureStdout();
    const Status status = ConvertModel(options_);
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }
  void ExpectError(StatusCode code, const std::string& message) {
    const Status status = ConvertModel(options_);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }

  TempFolder folder_;
  WhisperTensors model_ = RandomWhisper(SmallestWhisperConfig(), 3, WeightType::kF16);
  ConvertOptions options_ = {folder_.File("in.pt"), folder_.File("out.bin"), "f16"};
};

TEST_F(ConvertCommand, EveryTypeIsWrittenAndReadAgain) {
  for (const char* type : {"f16", "f32", "q8_0", "q5_0", "q5_1", "q4_0", "q4_1"}) {
    options_.type = type;
    const std::string text = Convert();
    EXPECT_NE(text.find("ggml, a Whisper model"), std::string::npos) << text;
    EXPECT_NE(text.find(options_.input), std::string::npos) << text;
    const Result<WhisperTensors> read = ReadWhisperFile(options_.output);
    ASSERT_TRUE(read.ok()) << read.status().message();
    std::string name = InfoOf(read->tensors.at("decoder.token_embedding.weight").type).name;
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(name, type);
  }
}

TEST_F(ConvertCommand, ACtranslate2FileBecomesTheSameModel) {
  Convert();
  WriteBytes(folder_.File("model.bin"), WhisperCt2Parts(model_).Build());
  options_.input = folder_.File("model.bin");
  options_.output = folder_.File("other.bin");
  Convert();
  std::ifstream one(folder_.File("out.bin")), other(folder_.File("other.bin"));
  EXPECT_TRUE(std::equal(std::istreambuf_iterator<char>(one), {},
                         std::istreambuf_iterator<char>(other), {}));
}

TEST_F(ConvertCommand, RoundingTwiceIsNoted) {
  options_.type = "q4_0";
  Convert();
  options_.input = options_.output;
  options_.output = folder_.File("again.bin");
  options_.type = "q8_0";
  testing::internal::CaptureStderr();
  Convert();
  const std::string note = testing::internal::GetCapturedStderr();
  EXPECT_NE(note.find("has been rounded to Q4_0 already"), std::string::npos) << note;
}

TEST_F(ConvertCommand, WhatCannotBeIsSaidBeforeAnythingIsWritten) {
  options_.type = "q3_k";
  ExpectError(StatusCode::kInvalidArgument, "--type \"q3_k\": not one of f16 f32 q8_0");
  options_.type = "f16";
  options_.output = options_.input;
  ExpectError(StatusCode::kInvalidArgument, "is the input");
  options_.output = folder_.path();
  ExpectError(StatusCode::kInvalidArgument, "is not a file");
  options_.output = folder_.File("no/such/folder.bin");
  ExpectError(StatusCode::kIoError, "--output");
  options_.output = folder_.File("out.bin");
  std::filesystem::resize_file(options_.input, 1000);
  EXPECT_FALSE(ConvertModel(options_).ok());
  EXPECT_FALSE(std::filesystem::exists(options_.output));
  options_.input = folder_.File("absent.pt");
  ExpectError(StatusCode::kNotFound, "absent.pt");
}

TEST_F(ConvertCommand, InspectSaysWhatTheFileIs) {
  options_.type = "q5_0";
  Convert();
  EXPECT_TRUE(IsWhisperFile(options_.output));
  EXPECT_TRUE(IsWhisperFile(options_.input));
  EXPECT_FALSE(IsWhisperFile(folder_.File("absent")));
  InspectModelOptions inspect;
  inspect.path = options_.output;
  inspect.tensors = inspect.metadata = true;
  inspect.json = folder_.File("out.json");
  testing::internal::CaptureStdout();
  const Status status = InspectWhisper(inspect);
  const std::string text = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(text.find("1 of the encoder, 1 of the decoder, width 32"), std::string::npos) << text;
  EXPECT_NE(text.find("decoder.blocks.0.cross_attn.key.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("n_audio_ctx"), std::string::npos) << text;
  const nlohmann::json row = nlohmann::json::parse(std::ifstream(inspect.json)).at("rows").at(0);
  EXPECT_EQ(row.at("architecture"), "whisper");
  EXPECT_EQ(row.at("format"), "ggml");
  EXPECT_EQ(row.at("n_text_ctx"), 8);
  EXPECT_EQ(row.at("tensors").size(), model_.tensors.size());
  EXPECT_EQ(row.at("self_kv_bytes_per_token_f16"), 2 * 2 * 32);
  EXPECT_EQ(row.at("types").size(), 3u);  // Q5_0, F32, convolutions in F16
}

// OpenAI's own files. `./dev models whisper-tiny.en whisper-base` brings and converts them.
TEST(WhisperFilesOnModels, TinyEnglishAndBaseLoadAndKeepTheirWeights) {
  for (const char* name : {"whisper-tiny.en", "whisper-base"}) {
    std::string path;
    VARVE_FIND_SPEECH_MODEL_OR_SKIP(name, path);
    const Result<WhisperTensors> model = ReadWhisperFile(path);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ("whisper-" + WhisperModelName(model->config), name);
    const std::string original =
        (std::filesystem::path(path).parent_path() / FindInCatalogue(name)->file).string();
    if (original == path || !std::filesystem::exists(original)) continue;
    // In f16, as the original is: the same bits.
    const Result<WhisperTensors> first = ReadWhisperFile(original);
    ASSERT_TRUE(first.ok()) << first.status().message();
    for (const auto& [tensor_name, tensor] : first->tensors) {
      const WhisperTensor& other = model->tensors.at(tensor_name);
      ASSERT_EQ(other.type, tensor.type) << tensor_name;
      EXPECT_EQ(std::memcmp(other.data, tensor.data, tensor.bytes()), 0) << tensor_name;
    }
  }
}

}  // namespace convert_command_test
}  // namespace varve::cli
