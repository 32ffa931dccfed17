#include "runtime/whisper/transcript_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quoted.h"
#include "base/utf8.h"

namespace varve {
namespace {

constexpr std::pair<std::string_view, TranscriptFormat> kFormats[] = {
    {"txt", TranscriptFormat::kText},
    {"srt", TranscriptFormat::kSrt},
    {"vtt", TranscriptFormat::kVtt},
    {"json", TranscriptFormat::kJson}};

// "01:02:03,004": hours have two digits or more.
std::string Clock(double seconds, char separator) {
  // A hundred years are enough, and every double below them has its milliseconds.
  const double bounded = std::isnan(seconds) ? 0.0 : std::clamp(seconds, 0.0, 3.2e9);
  const int64_t ms = std::llround(bounded * 1000);
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
                     separator, ms % 1000);
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// One line without outer blanks: a line break would end a cue.
std::string OneLine(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  std::string line(text);
  std::replace_if(line.begin(), line.end(), IsBlank, ' ');
  return line;
}

std::string ReplaceAll(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string EscapedForVtt(const std::string& text) {
  return ReplaceAll(ReplaceAll(ReplaceAll(text, "&", "&amp;"), "<", "&lt;"), ">", "&gt;");
}

double Rounded(double value, double steps) { return std::round(value * steps) / steps; }

double Milliseconds(double seconds) { return Rounded(seconds, 1e3); }

nlohmann::ordered_json WordsJson(const std::vector<TranscriptWord>& words) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string pending;
  for (size_t i = 0; i < words.size(); ++i) {
    pending += words[i].text;
    rows.push_back({{"word", TakeWholeUtf8(&pending, i + 1 == words.size())},
                    {"start", Milliseconds(words[i].start_s)},
                    {"end", Milliseconds(words[i].end_s)},
                    {"probability", Rounded(words[i].probability, 1e4)}});
  }
  return rows;
}

std::string Json(const Transcript& transcript) {
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  std::string all;
  std::string pending;
  for (size_t i = 0; i < transcript.segments.size(); ++i) {
    const TranscriptSegment& segment = transcript.segments[i];
    pending += segment.text;
    const std::string text = TakeWholeUtf8(&pending, i + 1 == transcript.segments.size());
    all += text;
    nlohmann::ordered_json row = {{"id", i},
                                  {"start", Milliseconds(segment.start_s)},
                                  {"end", Milliseconds(segment.end_s)},
                                  {"text", text},
                                  {"tokens", segment.tokens},
                                  {"temperature", Rounded(segment.temperature, 1e4)},
                                  {"avg_logprob", Rounded(segment.avg_logprob, 1e6)},
                                  {"compression_ratio", Rounded(segment.compression_ratio, 1e6)},
                                  {"no_speech_prob", Rounded(segment.no_speech_prob, 1e6)}};
    if (!segment.words.empty()) row["words"] = WordsJson(segment.words);
    segments.push_back(std::move(row));
  }
  const nlohmann::ordered_json whole = {{"language", transcript.language},
                                        {"duration", Milliseconds(transcript.duration_s)},
                                        {"text", OneLine(all)},
                                        {"segments", std::move(segments)}};
  return whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<TranscriptFormat> ParseTranscriptFormat(std::string_view name) {
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  return InvalidArgument(fmt::format("format {} is none of txt, srt, vtt and json", Quoted(name)));
}

std::string TranscriptWriter::Begin() const {
  return format_ == TranscriptFormat::kVtt ? "WEBVTT\n\n" : "";
}

std::string TranscriptWriter::Add(const TranscriptSegment& segment) {
  if (format_ == TranscriptFormat::kJson) return "";
  pending_ += segment.text;
  start_s_ = segment.start_s;
  end_s_ = std::max(segment.start_s, segment.end_s);
  return Cue(TakeWholeUtf8(&pending_, /*at_end=*/false));
}

// Nothing for a segment without text.
std::string TranscriptWriter::Cue(std::string_view text) {
  const std::string line = OneLine(text);
  if (line.empty()) return "";
  ++cues_;
  switch (format_) {
    case TranscriptFormat::kText:
      return line + "\n";
    case TranscriptFormat::kSrt:
      return fmt::format("{}\n{} --> {}\n{}\n\n", cues_, Clock(start_s_, ','), Clock(end_s_, ','),
                         ReplaceAll(line, "-->", "->"));
    case TranscriptFormat::kVtt:
      return fmt::format("{} --> {}\n{}\n\n", Clock(start_s_, '.'), Clock(end_s_, '.'),
                         EscapedForVtt(line));
    case TranscriptFormat::kJson:
      break;
  }
  return "";
}

std::string TranscriptWriter::End(const Transcript& transcript) {
  if (format_ == TranscriptFormat::kJson) return Json(transcript);
  return Cue(TakeWholeUtf8(&pending_, /*at_end=*/true));
}

std::string FormatTranscript(const Transcript& transcript, TranscriptFormat format) {
  TranscriptWriter writer(format);
  std::string text = writer.Begin();
  for (const TranscriptSegment& segment : transcript.segments) text += writer.Add(segment);
  return text + writer.End(transcript);
}

}  // namespace varve
