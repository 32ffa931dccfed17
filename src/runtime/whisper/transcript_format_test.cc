#include "runtime/whisper/transcript_format.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace varve {
namespace transcript_format_test {
namespace {

TranscriptSegment Segment(double start_s, double end_s, std::string text) {
  TranscriptSegment segment;
  segment.start_s = start_s;
  segment.end_s = end_s;
  segment.text = std::move(text);
  return segment;
}

Transcript TwoSegments() {
  Transcript transcript;
  transcript.language = "en";
  transcript.duration_s = 3725.5;
  transcript.segments = {Segment(0, 1.5, " Ask not."), Segment(3723.25, 3725.4996, " Ask.")};
  return transcript;
}

TEST(FormatTranscript, WritesALinePerSegment) {
  EXPECT_EQ(FormatTranscript(TwoSegments(), TranscriptFormat::kText), "Ask not.\nAsk.\n");
}

TEST(FormatTranscript, WritesSubtitlesBeyondAnHour) {
  EXPECT_EQ(FormatTranscript(TwoSegments(), TranscriptFormat::kSrt),
            "1\n00:00:00,000 --> 00:00:01,500\nAsk not.\n\n"
            "2\n01:02:03,250 --> 01:02:05,500\nAsk.\n\n");
  EXPECT_EQ(FormatTranscript(TwoSegments(), TranscriptFormat::kVtt),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nAsk not.\n\n"
            "01:02:03.250 --> 01:02:05.500\nAsk.\n\n");
}

TEST(FormatTranscript, WritesTimesThatMakeNoSenseAsTimes) {
  Transcript transcript;
  transcript.segments = {Segment(2, 1, "a"),
                         Segment(-1, std::numeric_limits<double>::quiet_NaN(), "b"),
                         Segment(360000, 360001, "c")};
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kSrt),
            "1\n00:00:02,000 --> 00:00:02,000\na\n\n"
            "2\n00:00:00,000 --> 00:00:00,000\nb\n\n"
            "3\n100:00:00,000 --> 100:00:01,000\nc\n\n");
}

TEST(FormatTranscript, EscapesWhatEndsACue) {
  Transcript transcript;
  transcript.segments = {Segment(0, 1, " a --> b\n\n<i>c</i> & \"d\"")};
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kSrt),
            "1\n00:00:00,000 --> 00:00:01,000\na -> b  <i>c</i> & \"d\"\n\n");
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kVtt),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n"
            "a --&gt; b  &lt;i&gt;c&lt;/i&gt; &amp; \"d\"\n\n");
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kText), "a --> b  <i>c</i> & \"d\"\n");
}

TEST(FormatTranscript, LeavesOutSegmentsWithoutText) {
  Transcript transcript;
  transcript.segments = {Segment(0, 1, " "), Segment(1, 2, "a")};
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kText), "a\n");
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kSrt),
            "1\n00:00:01,000 --> 00:00:02,000\na\n\n");
  EXPECT_EQ(FormatTranscript({}, TranscriptFormat::kText), "");
}

// 日 is E6 97 A5.
TEST(FormatTranscript, ShowsACutCharacterInTheSegmentThatEndsIt) {
  Transcript transcript;
  transcript.segments = {Segment(0, 1, "a\xE6\x97"), Segment(1, 2, "\xA5z"),
                         Segment(2, 3, "\xFFq\xE6")};
  EXPECT_EQ(FormatTranscript(transcript, TranscriptFormat::kText), "a\n日z\n\uFFFDq\n\uFFFD\n");
  const auto json = nlohmann::json::parse(FormatTranscript(transcript, TranscriptFormat::kJson));
  EXPECT_EQ(json.at("text"), "a日z\uFFFDq\uFFFD");
  EXPECT_EQ(json.at("segments")[0].at("text"), "a");
  EXPECT_EQ(json.at("segments")[1].at("text"), "日z");
}

TEST(FormatTranscript, WritesJsonWithEverything) {
  Transcript transcript = TwoSegments();
  TranscriptSegment& segment = transcript.segments[0];
  segment.tokens = {50363, 8189, 407};
  segment.temperature = 0.2;
  segment.avg_logprob = -0.25;
  segment.compression_ratio = 1.5;
  segment.no_speech_prob = 0.01;
  segment.words = {{0, 0.5, " Ask", 0.98765}, {0.5, 1.5, " \"not\".\n", 0.5}};
  const auto json = nlohmann::json::parse(FormatTranscript(transcript, TranscriptFormat::kJson));
  EXPECT_EQ(json.at("language"), "en");
  EXPECT_EQ(json.at("duration"), 3725.5);
  EXPECT_EQ(json.at("text"), "Ask not. Ask.");
  const auto& first = json.at("segments").at(0);
  EXPECT_EQ(first.at("id"), 0);
  EXPECT_EQ(first.at("end"), 1.5);
  EXPECT_EQ(first.at("text"), " Ask not.");
  EXPECT_EQ(first.at("tokens"), nlohmann::json({50363, 8189, 407}));
  EXPECT_EQ(first.at("temperature"), 0.2);
  EXPECT_EQ(first.at("avg_logprob"), -0.25);
  EXPECT_EQ(first.at("compression_ratio"), 1.5);
  EXPECT_EQ(first.at("no_speech_prob"), 0.01);
  EXPECT_EQ(first.at("words").at(0).at("word"), " Ask");
  EXPECT_EQ(first.at("words").at(0).at("probability"), 0.9877);
  EXPECT_EQ(first.at("words").at(1).at("word"), " \"not\".\n");
  EXPECT_EQ(json.at("segments").at(1).count("words"), 0U);
}

TEST(TranscriptWriter, GivesSegmentsAsTheyCome) {
  const Transcript transcript = TwoSegments();
  TranscriptWriter writer(TranscriptFormat::kVtt);
  EXPECT_EQ(writer.Begin(), "WEBVTT\n\n");
  EXPECT_EQ(writer.Add(transcript.segments[0]), "00:00:00.000 --> 00:00:01.500\nAsk not.\n\n");
  EXPECT_EQ(writer.End(transcript), "");
  TranscriptWriter json(TranscriptFormat::kJson);
  EXPECT_EQ(json.Add(transcript.segments[0]), "");
  EXPECT_FALSE(json.End(transcript).empty());
}

TEST(ParseTranscriptFormat, NamesTheFormatsThereAre) {
  EXPECT_EQ(*ParseTranscriptFormat("vtt"), TranscriptFormat::kVtt);
  const Result<TranscriptFormat> unknown = ParseTranscriptFormat("doc");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().message(), "format \"doc\" is none of txt, srt, vtt and json");
}

}  // namespace
}  // namespace transcript_format_test
}  // namespace varve
