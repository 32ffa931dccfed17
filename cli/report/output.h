// What every subcommand needs to talk to people and to programs: aligned tables, byte sizes, the
// JSON envelope, error lines, and plans given as an argument. Used by one thread.

#ifndef VARVE_CLI_REPORT_OUTPUT_H_
#define VARVE_CLI_REPORT_OUTPUT_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "varve/plan.h"
#include "varve/status.h"

namespace varve::cli {

// One per kind of fault; docs/reliability.md#exit-codes and `varve --help` list them.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;       // a check or a gate failed, or a fault of no other kind
inline constexpr int kExitBadUsage = 2;     // asked for something that cannot be
inline constexpr int kExitNotFound = 3;     // a file or model that does not exist
inline constexpr int kExitOutOfMemory = 4;  // the system, or a cap such as --max-bytes
inline constexpr int kExitBadData = 5;      // a file is damaged, or not the one that was pinned
inline constexpr int kExitIo = 6;           // the system refused to read or write

// For --help and the manual page.
struct ExitCodeMeaning {
  int code;
  const char* meaning;
};
inline constexpr ExitCodeMeaning kExitCodes[] = {
    {kExitDone, "done"},
    {kExitFailed, "a gate or a check failed, or a fault of no other kind"},
    {kExitBadUsage, "asked for something that cannot be: options, plans, what this build lacks"},
    {kExitNotFound, "a file or a model that does not exist"},
    {kExitOutOfMemory, "no memory, of the system or under a cap such as --max-bytes"},
    {kExitBadData, "a file is damaged, or not the one that was pinned"},
    {kExitIo, "the system refused to read or to write: no room, no permission"},
};
inline constexpr const char* kInterruptedMeaning =
    "ended by signal N (130 for Ctrl-C); what there was so far is printed, written and saved";
// The list as lines.
std::string ExitCodesText();

// Columns that line up. A column is right-aligned when its header starts with '>' (which is not
// printed); widths count code points.
//
//   TextTable table({"rung", ">us"});
//   table.AddRow({"q8_0", "12.5"});
//   table.Print(stdout);
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);

  // Missing cells are empty; cells beyond the headers are dropped. `style` is the number of a
  // terminal's colour or style ("31" is red) that the row has if there is colour; empty: plain.
  void AddRow(std::vector<std::string> cells, std::string style = {});
  // The header is bold if `colour`; lines have no trailing blanks.
  std::string Render(bool colour) const;
  // Renders with colour if UseColour(file).
  void Print(std::FILE* file) const;

 private:
  std::vector<std::string> headers_;
  std::vector<bool> right_aligned_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::string> styles_;  // of the rows
};

// True on a terminal, unless NO_COLOR is set to something.
bool UseColour(std::FILE* file);

// "512 B", "1.50 KiB", "64.0 MiB": three digits or more, powers of 1024.
std::string HumanBytes(double bytes);

// {"cpu", "cores", "isa", "last_level_cache_bytes", "total_memory_bytes"}
nlohmann::ordered_json MachineJson();

// Writes {"command", "version", "machine", "rows": [...]} to a file, or to stdout for "-".
Status WriteJson(const std::string& target, std::string_view command,
                 const nlohmann::ordered_json& rows);

// Writes a whole text file, atomically (WriteFile of base/atomic_file.h).
Status WriteText(const std::string& path, std::string_view text);

// An error if the file that `option` names cannot be written: asked before the long work, not after
// it. Changes nothing. Empty, and "-" for stdout, are fine.
Status CheckWritable(std::string_view option, const std::string& target);

// The end of a command that measures: writes the rows, if JSON was asked for, even when `measured`
// is an error, as long as there are any. Returns the first error.
Status FinishJson(const Status& measured, const std::string& target, std::string_view command,
                  const nlohmann::ordered_json& rows);

// "3.10x smaller than f16", that it is as large, or that the text is too short to tell: a page has
// its bytes from its first token on.
std::string SizeAgainstF16(double ratio, std::string_view times = "x");

// The plan that --kv means: as ReadPlanArgument, errors begin with the option.
Result<Plan> ReadKvOption(const std::string& argument);
// The plan that a command-line argument means: the text form, or "@file.json".
Result<Plan> ReadPlanArgument(const std::string& argument);

// Writes to stderr, or `file`, and forgets: fmt::print throws when a write fails, and a note that
// nobody can read must not end work whose results have still to be written.
void WriteNote(std::string_view text, std::FILE* file = stderr);

// The arguments of this process, quoted where a shell needs it.
std::string CommandLine();

// An error if anything written to stdout did not get out; flushes it.
Status FlushStdout();

// Prints "varve: message" to stderr and returns the exit code that suits the status.
int ReportError(const Status& status);

// The callback of a subcommand: does `work` with the options and, if that fails, reports the error
// and sets *exit_code, which must outlive the callback.
template <typename Options>
auto Action(std::shared_ptr<Options> options, Status (*work)(const Options&), int* exit_code) {
  return [options, work, exit_code] {
    const Status status = work(*options);
    if (!status.ok()) *exit_code = ReportError(status);
  };
}

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_OUTPUT_H_
