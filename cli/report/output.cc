#include "cli/report/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/machine.h"
#include "kernels/kernels.h"

#ifndef VARVE_VERSION
#define VARVE_VERSION "unknown"
#endif

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPlanFileBytes = size_t{64} << 10;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

size_t CodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// Reads up to one byte more than the parser takes, so that the parser reports the excess.
Result<std::string> ReadPlanFile(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    const int error = errno;
    return Status(
        error == ENOENT ? StatusCode::kNotFound : StatusCode::kIoError,
        fmt::format("plan file \"{}\": cannot be opened: {}", path, std::strerror(error)));
  }
  std::string content(kMaxPlanFileBytes + 1, '\0');
  content.resize(std::fread(content.data(), 1, content.size(), file.get()));
  if (std::ferror(file.get()))
    return IoError(fmt::format("plan file \"{}\": cannot be read", path));
  return content;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> headers) : headers_(std::move(headers)) {
  for (std::string& header : headers_) {
    right_aligned_.push_back(header.starts_with('>'));
    if (right_aligned_.back()) header.erase(0, 1);
  }
}

void TextTable::AddRow(std::vector<std::string> cells, std::string style) {
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
  styles_.push_back(std::move(style));
}

std::string TextTable::Render(bool colour) const {
  std::vector<size_t> widths;
  for (const std::string& header : headers_) widths.push_back(CodePoints(header));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], CodePoints(row[i]));
  }
  auto render_row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - CodePoints(cells[i]), ' ');
      if (i > 0) line += "  ";
      line += right_aligned_[i] ? padding + cells[i] : cells[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::string text = render_row(headers_);
  if (colour) text = "\x1b[1m" + text + "\x1b[0m";
  text += '\n';
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool styled = colour && !styles_[i].empty();
    if (styled) text += "\x1b[" + styles_[i] + "m";
    text += render_row(rows_[i]);
    text += styled ? "\x1b[0m\n" : "\n";
  }
  return text;
}

void TextTable::Print(std::FILE* file) const {
  const std::string text = Render(UseColour(file));
  std::fwrite(text.data(), 1, text.size(), file);
}

bool UseColour(std::FILE* file) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(fileno(file)) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  const int decimals = bytes < 10 ? 2 : bytes < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

Json MachineJson() {
  const MachineInfo machine = DescribeMachine();
  return Json{{"cpu", machine.cpu},
              {"cores", machine.cores},
              {"isa", ActiveKernels().name},
              {"last_level_cache_bytes", machine.last_level_cache_bytes},
              {"total_memory_bytes", machine.total_memory_bytes}};
}

Status WriteJson(const std::string& target, std::string_view command, const Json& rows) {
  const Json envelope{
      {"command", command}, {"version", VARVE_VERSION}, {"machine", MachineJson()}, {"rows", rows}};
  const std::string text =
      envelope.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (target == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return FlushStdout();
  }
  return WriteText(target, text);
}

Status WriteText(const std::string& path, std::string_view text) {
  return WriteFile(path, std::as_bytes(std::span(text)));
}

Status CheckWritable(std::string_view option, const std::string& target) {
  if (target.empty() || target == "-") return Status();
  const auto fail = [&](int error) {
    return IoError(
        fmt::format("{} \"{}\": cannot be written: {}", option, target, std::strerror(error)));
  };
  struct stat info {};
  const bool exists = stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return fail(EISDIR);
  // Opening a pipe and closing it again would be its end.
  if (exists && !S_ISREG(info.st_mode)) {
    return access(target.c_str(), W_OK) == 0 ? Status() : fail(errno);
  }
  const File file(std::fopen(target.c_str(), "ab"));
  if (!file) return fail(errno);
  if (!exists) std::remove(target.c_str());
  // The new file takes the old one's name in its folder, which must be writable then.
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::weakly_canonical(std::filesystem::absolute(target), error).parent_path();
  return error || access(folder.c_str(), W_OK) == 0 ? Status() : fail(errno);
}

Status FinishJson(const Status& measured, const std::string& target, std::string_view command,
                  const Json& rows) {
  if (target.empty() || (!measured.ok() && rows.empty())) return measured;
  const Status written = WriteJson(target, command, rows);
  return measured.ok() ? written : measured;
}

std::string SizeAgainstF16(double ratio, std::string_view times) {
  if (ratio >= 1.05) return fmt::format("{:.2f}{} smaller than f16", ratio, times);
  if (ratio >= 0.9) return "as large as f16";
  return "too short to compare with f16 (pages are allocated whole)";
}

Result<Plan> ReadKvOption(const std::string& argument) {
  Result<Plan> plan = ReadPlanArgument(argument);
  if (plan.ok()) return plan;
  return Status(plan.status().code(),
                fmt::format("--kv \"{}\": {}", argument, plan.status().message()));
}

Result<Plan> ReadPlanArgument(const std::string& argument) {
  if (!argument.starts_with('@')) return ParsePlan(argument);
  const std::string path = argument.substr(1);
  VARVE_ASSIGN_OR_RETURN(std::string content, ReadPlanFile(path));
  Result<Plan> plan = ParsePlanJson(content);
  if (plan.ok()) return plan;
  return Status(plan.status().code(),
                fmt::format("plan file \"{}\": {}", path, plan.status().message()));
}

void WriteNote(std::string_view text, std::FILE* file) {
  std::fwrite(text.data(), 1, text.size(), file);
}

std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string arguments((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string line;
  for (size_t begin = 0; begin < arguments.size();) {
    const size_t end = std::min(arguments.find('\0', begin), arguments.size());
    const std::string argument = arguments.substr(begin, end - begin);
    const bool plain = !argument.empty() && argument.find_first_not_of(
                                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"
                                                "XYZ0123456789_-./:=,@%+") == std::string::npos;
    if (!line.empty()) line += ' ';
    if (plain) {
      line += argument;
    } else {
      line += '\'';
      for (const char c : argument) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
      line += '\'';
    }
    begin = end + 1;
  }
  return line;
}

Status FlushStdout() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return Status();
  // The write that failed may be long ago.
  const std::string reason = errno == 0 ? std::string() : fmt::format(": {}", std::strerror(errno));
  return IoError("stdout: cannot be written" + reason);
}

std::string ExitCodesText() {
  std::string text = "Exit codes:\n";
  for (const ExitCodeMeaning& exit : kExitCodes)
    text += fmt::format("  {:<7} {}\n", exit.code, exit.meaning);
  return text + fmt::format("  {:<7} {}", "128 + N", kInterruptedMeaning);
}

int ReportError(const Status& status) {
  WriteNote(fmt::format("varve: {}\n", status.message()));
  switch (status.code()) {
    case StatusCode::kOk:
      return kExitDone;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented:
      return kExitBadUsage;
    case StatusCode::kNotFound:
      return kExitNotFound;
    case StatusCode::kOutOfMemory:
      return kExitOutOfMemory;
    case StatusCode::kDataLoss:
      return kExitBadData;
    case StatusCode::kIoError:
      return kExitIo;
    case StatusCode::kFailedPrecondition:
    case StatusCode::kInternal:
      return kExitFailed;
  }
  return kExitFailed;
}

}  // namespace varve::cli
