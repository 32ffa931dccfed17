#include "runtime/eval/speech_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "base/quoted.h"
#include "runtime/audio/audio_file.h"

namespace varve {
namespace {

constexpr std::string_view kExtensions[] = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3"};

using Cells = std::vector<std::string_view>;

Cells SplitAt(char separator, std::string_view line) {
  Cells cells;
  for (;;) {
    const size_t end = std::min(line.find(separator), line.size());
    cells.push_back(line.substr(0, end));
    if (end == line.size()) return cells;
    line.remove_prefix(end + 1);
  }
}

// A list: its lines without line ends, and where it is for messages.
struct List {
  std::string path;
  std::unique_ptr<const MappedFile> file;
  std::vector<std::pair<size_t, std::string_view>> lines;  // number from 1; none is empty

  std::string Place(size_t number) const { return fmt::format("{} line {}", path, number); }
};

Result<List> OpenList(const std::string& path) {
  List list;
  list.path = path;
  VARVE_ASSIGN_OR_RETURN(list.file, MappedFile::Open(path));
  std::string_view text(reinterpret_cast<const char*>(list.file->bytes().data()),
                        list.file->bytes().size());
  if (text.size() > kMaxSpeechListBytes) {
    return InvalidArgument(
        fmt::format("{} has {} bytes > {}", path, text.size(), kMaxSpeechListBytes));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  size_t number = 0;
  for (std::string_view line : SplitAt('\n', text)) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) list.lines.emplace_back(number, line);
  }
  return list;
}

// Ids are names inside the folder, whoever wrote the list.
bool IsInside(const std::filesystem::path& name) {
  return !name.empty() && name.is_relative() &&
         std::find(name.begin(), name.end(), "..") == name.end();
}

// The recording of an id with any known extension in place of its own, or behind it; empty if there
// is none.
std::string FindRecording(const std::string& folder, std::string_view id) {
  const std::filesystem::path base = std::filesystem::path(folder) / id;
  std::error_code ignored;
  std::filesystem::path stem = base;
  if (std::find(std::begin(kExtensions), std::end(kExtensions), base.extension().string()) !=
      std::end(kExtensions)) {
    if (std::filesystem::is_regular_file(base, ignored)) return base.string();
    stem.replace_extension();
  }
  for (const std::string_view extension : kExtensions) {
    std::filesystem::path candidate = stem;
    candidate += extension;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate.string();
  }
  return "";
}

Result<SpeechFolder> ReadTranscripts(const std::string& folder, const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(const List list, OpenList(path));
  SpeechFolder result;
  for (const auto& [number, line] : list.lines) {
    const Cells cells = SplitAt('\t', line);
    if (cells.size() < 2) {
      return InvalidArgument(
          fmt::format("{} has no tab: an id, a tab and a text are expected", list.Place(number)));
    }
    if (!IsInside(cells.front())) {
      return InvalidArgument(fmt::format("{}: id {} is no name inside the folder",
                                         list.Place(number), Quoted(cells.front())));
    }
    std::string recording = FindRecording(folder, cells.front());
    if (!recording.empty()) {
      result.utterances.push_back(
          {std::string(cells.front()), std::move(recording), std::string(cells.back())});
    } else if (number != list.lines.front().first) {
      ++result.rows_without_audio;
    }
  }
  return result;
}

// Columns of segments.tsv.
struct SegmentColumns {
  size_t begin = 0;
  size_t samples = 0;
  size_t text = 0;
  size_t count = 0;
};

Result<SegmentColumns> FindColumns(const List& list) {
  if (list.lines.empty()) return InvalidArgument(list.path + " has no lines");
  const Cells header = SplitAt('\t', list.lines.front().second);
  const auto column = [&header](std::string_view name) {
    return static_cast<size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const SegmentColumns columns = {column("start_sample_16k"), column("num_samples_16k"),
                                  std::min(column("text"), column("digit")), header.size()};
  if (std::max({columns.begin, columns.samples, columns.text}) == columns.count) {
    return InvalidArgument(fmt::format(
        "{}: its header needs the columns start_sample_16k, num_samples_16k and text or digit",
        list.path));
  }
  return columns;
}

bool ParseCount(std::string_view cell, size_t* value) {
  const std::from_chars_result parsed =
      std::from_chars(cell.data(), cell.data() + cell.size(), *value);
  return parsed.ec == std::errc() && parsed.ptr == cell.data() + cell.size();
}

Result<SpeechFolder> ReadSegments(const std::string& folder, const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(const List list, OpenList(path));
  VARVE_ASSIGN_OR_RETURN(const SegmentColumns columns, FindColumns(list));
  SpeechFolder result;
  std::string last_name;
  std::string last_path;
  for (const auto& [number, line] : std::span(list.lines).subspan(1)) {
    const Cells cells = SplitAt('\t', line);
    Utterance utterance;
    if (cells.size() != columns.count || !IsInside(cells.front()) ||
        !ParseCount(cells[columns.begin], &utterance.begin) ||
        !ParseCount(cells[columns.samples], &utterance.samples) || utterance.samples == 0) {
      return InvalidArgument(
          fmt::format("{} is no recording, begin, length above 0 and text in {} columns: {}",
                      list.Place(number), columns.count, Quoted(line)));
    }
    if (cells.front() != last_name) {
      last_name = cells.front();
      last_path = FindRecording(folder, last_name);
    }
    if (last_path.empty()) {
      ++result.rows_without_audio;
      continue;
    }
    utterance.id = fmt::format("{}:{}", last_name, utterance.begin);
    utterance.path = last_path;
    utterance.text = cells[columns.text];
    result.utterances.push_back(std::move(utterance));
  }
  return result;
}

}  // namespace

Result<SpeechFolder> ReadSpeechFolder(const std::string& folder) {
  const std::filesystem::path base(folder);
  std::error_code ignored;
  const std::string transcripts = (base / "transcripts.tsv").string();
  const std::string segments = (base / "segments.tsv").string();
  if (std::filesystem::exists(transcripts, ignored)) return ReadTranscripts(folder, transcripts);
  if (std::filesystem::exists(segments, ignored)) return ReadSegments(folder, segments);
  return NotFound(fmt::format("{} has neither transcripts.tsv nor segments.tsv", folder));
}

Result<std::span<const float>> UtteranceReader::Read(const Utterance& utterance) {
  if (utterance.path != path_) {
    path_.clear();
    VARVE_ASSIGN_OR_RETURN(samples_, ReadSpeech(utterance.path));
    path_ = utterance.path;
  }
  const std::span<const float> all(samples_);
  if (utterance.begin > all.size() || utterance.samples > all.size() - utterance.begin) {
    return DataLoss(fmt::format("{}: {} has {} samples, fewer than {} + {}", utterance.id,
                                utterance.path, all.size(), utterance.begin, utterance.samples));
  }
  return all.subspan(utterance.begin,
                     utterance.samples == 0 ? std::dynamic_extent : utterance.samples);
}

}  // namespace varve
