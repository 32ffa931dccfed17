// Models by name: where they are looked for, what -m makes of a name, what `varve models` lists.

#include "cli/models/found_models.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/model_argument.h"
#include "cli/models/models_command.h"
#include "runtime/embedded_model.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace found_models_test {

namespace fs = std::filesystem;

// An environment variable as long as this lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class FoundModels : public ::testing::Test {
 protected:
  // Parents are made; the content does not matter to who only looks for names.
  void Put(const std::string& name, const std::string& content = "x") {
    fs::create_directories(fs::path(folder_.File(name)).parent_path());
    std::ofstream(folder_.File(name)) << content;
  }
  void ExpectNotFound(const std::string& name, const std::string& message) {
    const Status status = ResolveModel(name).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }

  TempFolder folder_;
  ScopedVariable variable_{"VARVE_MODELS", folder_.path()};
};

TEST(ModelCatalogue, IsThatOfTheRepositoryAndHasWhatPeopleAsk) {
  ASSERT_TRUE(ParseCatalogue(EmbeddedCatalogue()).ok());
  ASSERT_NE(FindInCatalogue("smollm2"), nullptr);
  EXPECT_EQ(FindInCatalogue("smollm2")->bytes, 98362432u);
  EXPECT_EQ(FindInCatalogue("smollm2")->licence, "Apache-2.0");
  EXPECT_EQ(FindInCatalogue("smollm2")->kind, ModelKind::kText);
  EXPECT_EQ(FindInCatalogue("whisper-base")->file, "model.bin");
  EXPECT_EQ(FindInCatalogue("whisper-base")->kind, ModelKind::kSpeech);
  EXPECT_EQ(FindInCatalogue("whisper-base")->converted, "ggml-base.bin");
  EXPECT_EQ(FindInCatalogue("gpt-5"), nullptr);
}

TEST(ModelCatalogue, SaysWhatIsMissing) {
  EXPECT_NE(ParseCatalogue(R"({"models": [{"name": "a"}]})").status().message().find("what"),
            std::string::npos);
  EXPECT_FALSE(ParseCatalogue("{").ok());
  EXPECT_EQ(ParseCatalogue(R"({"models": [{"name": "a", "what": "", "licence": "", "kind": "text",
                               "files": []}]})")
                .status()
                .message(),
            "catalogue: a has no files");
  EXPECT_EQ(ParseCatalogue(R"({"models": [{"name": "a", "what": "", "licence": "", "kind": "smell",
                               "files": []}]})")
                .status()
                .message(),
            "catalogue: a: kind \"smell\" is neither text nor speech");
}

TEST_F(FoundModels, ANameIsTheFileThatLiesThere) {
  ExpectNotFound("smollm2", "bring its 98 MB with: ./dev models smollm2");
  const std::string file = FindInCatalogue("smollm2")->file;
  Put(file);
  EXPECT_EQ(*ResolveModel("smollm2"), folder_.File(file));
  Put("smollm2/" + file);
  EXPECT_EQ(*ResolveModel("smollm2"), folder_.File("smollm2/" + file));
  Put("mine.gguf");
  EXPECT_EQ(*ResolveModel("mine"), folder_.File("mine.gguf"));
  EXPECT_EQ(FindModels().size(), 2u);
}

TEST_F(FoundModels, AnUnknownNameSaysWhichModelsAreHere) {
  ExpectNotFound("smolm2", "\"smolm2\" is no file, and no model has that name; here are: none");
  Put("mine.gguf");
  Put("big-00001-of-00002.gguf");
  Put("big-00002-of-00002.gguf");
  ExpectNotFound("smolm2", "here are: big-00001-of-00002 mine. ");
}

TEST_F(FoundModels, APathStaysAPath) {
  EXPECT_EQ(*ResolveModel("no/such/file"), "no/such/file");
  EXPECT_EQ(*ResolveModel("absent.gguf"), "absent.gguf");
  Put("bare");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_EQ(*ResolveModel("bare"), "bare");
  fs::current_path(before);
}

TEST_F(FoundModels, AModelOfTheOtherKindIsNotGivenToACommand) {
  Put("whisper-tiny.en/tiny.en.pt");
  const Status status = ResolveModel("whisper-tiny.en").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "whisper-tiny.en is a model of speech; `varve transcribe -m whisper-tiny.en` takes it");
  EXPECT_EQ(ResolveModel("whisper-base").status().message(),  // not here
            "whisper-base is a model of speech; `varve transcribe -m whisper-base` takes it");
  Put("mine.gguf");
  EXPECT_NE(ResolveModel("mine", ModelKind::kSpeech).status().message().find("`varve run -m mine`"),
            std::string::npos);
}

TEST_F(FoundModels, WhatHasBeenConvertedIsTakenFirst) {
  Put("whisper-tiny.en/tiny.en.pt");
  EXPECT_EQ(*ResolveModel("whisper-tiny.en", ModelKind::kSpeech),
            folder_.File("whisper-tiny.en/tiny.en.pt"));
  Put("whisper-tiny.en/ggml-tiny.en.bin");
  EXPECT_EQ(*ResolveModel("whisper-tiny.en", ModelKind::kSpeech),
            folder_.File("whisper-tiny.en/ggml-tiny.en.bin"));
}

TEST_F(FoundModels, AWhisperFileOfTheOwnerIsAModelOfSpeech) {
  Put("small.bin", "lmgg and more");
  Put("other.bin", "no model");
  Put("short.bin", "lm");
  EXPECT_EQ(*ResolveModel("small", ModelKind::kSpeech), folder_.File("small.bin"));
  EXPECT_FALSE(ResolveModel("other", ModelKind::kSpeech).ok());
  ASSERT_EQ(FindModels().size(), 1u);
  EXPECT_EQ(FindModels()[0].kind, ModelKind::kSpeech);
  EXPECT_EQ(*ResolveModel("absent.bin", ModelKind::kSpeech), "absent.bin");
  EXPECT_EQ(*ResolveModel("absent.pt", ModelKind::kSpeech), "absent.pt");
}

TEST_F(FoundModels, EveryModelOptionTakesAName) {
  TinyModel().Write(folder_.File("tiny.gguf"));
  CLI::App app;
  std::string path;
  AddModelOption(app, path);
  app.parse(std::vector<std::string>{"tiny", "-m"});
  EXPECT_EQ(path, folder_.File("tiny.gguf"));
  EXPECT_EQ(LoadModel(path)->name, "tiny.gguf");
  app.clear();
  EXPECT_THROW(app.parse(std::vector<std::string>{"tini", "-m"}), CLI::ParseError);
}

TEST_F(FoundModels, ASpeechModelOptionTakesModelsOfSpeechAndIsRequired) {
  Put("small.bin", "lmgg");
  Put("text.gguf");
  CLI::App app;
  std::string path;
  AddSpeechModelOption(app, path);
  app.parse(std::vector<std::string>{"small", "-m"});
  EXPECT_EQ(path, folder_.File("small.bin"));
  std::vector<std::vector<std::string>> wrongs = {{}, {"", "-m"}, {"text", "-m"}, {"absent", "-m"}};
  for (std::vector<std::string>& wrong : wrongs) {
    app.clear();
    EXPECT_THROW(app.parse(wrong), CLI::ParseError);
  }
}

TEST_F(FoundModels, TheListTellsWhatIsHereAndWhatCanBeBrought) {
  Put("mine.gguf", "12345");
  Put("smollm2/" + FindInCatalogue("smollm2")->file);
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(ListModels(folder_.File("out.json")).ok());
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("looked in: " + folder_.path()), std::string::npos) << text;
  EXPECT_NE(text.find("./dev models whisper-tiny.en whisper-base\n"), std::string::npos) << text;
  const nlohmann::json rows =
      nlohmann::json::parse(std::ifstream(folder_.File("out.json"))).at("rows");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["name"], "smollm2");
  EXPECT_EQ(rows[0]["kind"], "text");
  EXPECT_EQ(rows[1]["name"], "mine");
  EXPECT_EQ(rows[1]["bytes"], 5);
  EXPECT_EQ(rows[1]["path"], folder_.File("mine.gguf"));
  EXPECT_TRUE(rows[3]["path"].is_null());
  EXPECT_EQ(rows[3]["kind"], "speech");
}

TEST(ModelFolders, TheUsersDataIsLookedThroughToo) {
  const ScopedVariable models("VARVE_MODELS", "");
  const ScopedVariable data("XDG_DATA_HOME", "/data");
  EXPECT_EQ(ModelFolders().back(), "/data/varve/models");
  const ScopedVariable none("XDG_DATA_HOME", "");
  const ScopedVariable home("HOME", "/home/x");
  EXPECT_EQ(ModelFolders().back(), "/home/x/.local/share/varve/models");
}

}  // namespace found_models_test
}  // namespace varve::cli
