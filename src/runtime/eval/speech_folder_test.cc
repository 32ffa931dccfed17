#include "runtime/eval/speech_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/audio/audio_file.h"
#include "runtime/audio/sound_testing.h"

namespace varve {
namespace speech_folder_test {
namespace {

class SpeechFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "varve_speech_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  void ExpectRefused(const std::string& part) const {
    const Result<SpeechFolder> read = ReadSpeechFolder(folder_);
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
  }

  std::string folder_;
};

TEST_F(SpeechFolderTest, TakesIdAndTextWithOrWithoutHeader) {
  for (const char* name : {"a.wav", "b.flac", "c.opus"}) Write(name, "x");
  for (const char* header : {"", "id\tseconds\ttext\n"}) {
    Write("transcripts.tsv", std::string(header) + "a\t1.5\tSo it goes.\nb\t2.0\t\nc\tIt ends.");
    const Result<SpeechFolder> read = ReadSpeechFolder(folder_);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    ASSERT_EQ(read->utterances.size(), 3U);
    EXPECT_EQ(read->rows_without_audio, 0U);
    EXPECT_EQ(read->utterances[0].id, "a");
    EXPECT_EQ(read->utterances[0].path, folder_ + "/a.wav");
    EXPECT_EQ(read->utterances[0].text, "So it goes.");
    EXPECT_EQ(read->utterances[1].path, folder_ + "/b.flac");
    EXPECT_EQ(read->utterances[1].text, "");
    EXPECT_EQ(read->utterances[2].text, "It ends.");
  }
}

TEST_F(SpeechFolderTest, CountsRowsWithoutAudio) {
  Write("b.mp3", "x");
  Write("transcripts.tsv",
        "\xEF\xBB\xBFid\ttext\r\na\tno\r\n\r\nb.mp3\tyes\r\nb.wav\talso\r\nz\tno\r\n");
  const Result<SpeechFolder> read = ReadSpeechFolder(folder_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->rows_without_audio, 2U);
  ASSERT_EQ(read->utterances.size(), 2U);
  EXPECT_EQ(read->utterances[0].path, folder_ + "/b.mp3");
  EXPECT_EQ(read->utterances[0].text, "yes");
  EXPECT_EQ(read->utterances[1].path, folder_ + "/b.mp3");
}

TEST_F(SpeechFolderTest, NamesTheLineThatMakesNoSense) {
  ExpectRefused("has neither transcripts.tsv nor segments.tsv");
  Write("transcripts.tsv", "id\ttext\n\nonly words\n");
  ExpectRefused("transcripts.tsv line 3 has no tab");
  Write("transcripts.tsv", "../a\ttext\n");
  ExpectRefused("line 1: id \"../a\" is no name inside the folder");
  Write("transcripts.tsv", "/etc/a\ttext\n");
  ExpectRefused("is no name inside the folder");
  std::filesystem::remove(folder_ + "/transcripts.tsv");
  Write("segments.tsv", "file\tstart\n");
  ExpectRefused("needs the columns start_sample_16k, num_samples_16k and text or digit");
  Write("segments.tsv", "file\tstart_sample_16k\tnum_samples_16k\tdigit\ns.wav\t0\t-5\t7\n");
  ExpectRefused("segments.tsv line 2");
  Write("segments.tsv", "file\tstart_sample_16k\tnum_samples_16k\tdigit\ns.wav\t0\t5\n");
  ExpectRefused("segments.tsv line 2");
}

TEST_F(SpeechFolderTest, CutsUtterancesFromTheirRecording) {
  std::vector<float> samples(1000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i) / 1000.0F;
  const std::vector<std::byte> wav =
      EncodeSound(samples, {SF_FORMAT_WAV | SF_FORMAT_FLOAT, kSpeechRate, 1});
  Write("s1.wav", std::string(reinterpret_cast<const char*>(wav.data()), wav.size()));
  Write("segments.tsv",
        "flac\tstart_sample_16k\tnum_samples_16k\tdigit\tspeaker\n"
        "s1.flac\t10\t5\t7\t01\ns1.flac\t900\t101\t8\t01\ns2.flac\t0\t5\t9\t02\n");
  const Result<SpeechFolder> read = ReadSpeechFolder(folder_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->rows_without_audio, 1U);
  ASSERT_EQ(read->utterances.size(), 2U);
  EXPECT_EQ(read->utterances[0].id, "s1.flac:10");
  EXPECT_EQ(read->utterances[0].text, "7");

  UtteranceReader reader;
  const Result<std::span<const float>> cut = reader.Read(read->utterances[0]);
  ASSERT_TRUE(cut.ok()) << cut.status().ToString();
  EXPECT_EQ(std::vector<float>(cut->begin(), cut->end()),
            std::vector<float>(samples.begin() + 10, samples.begin() + 15));
  const Result<std::span<const float>> beyond = reader.Read(read->utterances[1]);
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.status().message().find("has 1000 samples, fewer than 900 + 101"),
            std::string::npos)
      << beyond.status().message();
  Utterance whole;
  whole.path = read->utterances[0].path;
  EXPECT_EQ(reader.Read(whole)->size(), 1000U);
}

}  // namespace
}  // namespace speech_folder_test
}  // namespace varve
