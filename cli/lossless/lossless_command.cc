#include "cli/lossless/lossless_command.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/half.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/lossless/codec_runs.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"

namespace varve::cli {
namespace {

using store::LaneType;

void RoundToF16(DumpRows& rows) {
  std::vector<std::byte> rounded(rows.bytes.size() / 2);
  for (size_t i = 0; i < rounded.size() / 2; ++i) {
    float value;
    std::memcpy(&value, &rows.bytes[4 * i], 4);
    const uint16_t bits = F32ToF16(value);
    std::memcpy(&rounded[2 * i], &bits, 2);
  }
  rows.bytes = std::move(rounded);
  rows.lane = LaneType::kF16;
}

// The pieces of one layer and part, end to end.
struct LayerPart {
  DumpRows rows;
  std::vector<TokenSpan> pieces;  // what the meta files hold
  double bound = 0;
  int failed = 0;
};

class LosslessEvaluation {
 public:
  explicit LosslessEvaluation(const LosslessOptions& options)
      : options_(options), out_(options.json == "-" ? stderr : stdout) {}

  Status Run() {
    VARVE_RETURN_IF_ERROR(CheckWritable("--json", options_.json));
    return FinishJson(Measure(), options_.json, "lossless", rows_);
  }

 private:
  Status Measure();
  Status Load();
  void AddPiece(DumpRows rows);
  void Evaluate(const std::string& mode, CodecKind kind, LayerPart& part);
  void ReportTotals() const;

  struct Total {
    uint64_t raw = 0, packed = 0, front_raw = 0, front_packed = 0;
  };
  const LosslessOptions& options_;
  std::FILE* out_;
  std::vector<LayerPart> parts_;
  int64_t failed_ = 0;                                           // entries
  int64_t skipped_ = 0;                                          // f32 in strict mode
  std::map<std::pair<std::string, std::string>, Total> totals_;  // by mode and codec
  TextTable table_{{"mode", "layer", "part", "dtype", "codec", ">ratio", ">bound", ">of bound",
                    ">encode GB/s", ">decode GB/s"}};
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

void LosslessEvaluation::AddPiece(DumpRows rows) {
  if (rows.lane == LaneType::kF32) RoundToF16(rows);
  const auto same = [&](const LayerPart& part) {
    return part.rows.layer == rows.layer && part.rows.part == rows.part &&
           part.rows.lane == rows.lane && part.rows.num_heads == rows.num_heads &&
           part.rows.head_dim == rows.head_dim;
  };
  const auto found = std::find_if(parts_.begin(), parts_.end(), same);
  if (found == parts_.end()) {
    const TokenSpan all = {0, rows.num_tokens};
    parts_.push_back({std::move(rows), {all}, 0, 0});
    return;
  }
  found->pieces.push_back({found->rows.num_tokens, rows.num_tokens});
  found->rows.num_tokens += rows.num_tokens;
  found->rows.bytes.insert(found->rows.bytes.end(), rows.bytes.begin(), rows.bytes.end());
}

Status LosslessEvaluation::Load() {
  VARVE_ASSIGN_OR_RETURN(ReadDumpResult dump, ReadDump(options_.folder));
  for (const std::string& failure : dump.failures) WriteNote("varve: " + failure + "\n");
  failed_ += static_cast<int64_t>(dump.failures.size());
  for (DumpPiece& piece : dump.pieces) {
    if (options_.strict && piece.keys.lane == LaneType::kF32) {
      ++skipped_;
      continue;
    }
    AddPiece(std::move(piece.keys));
    AddPiece(std::move(piece.values));
  }
  std::stable_sort(parts_.begin(), parts_.end(), [](const LayerPart& a, const LayerPart& b) {
    return std::pair(a.rows.layer, a.rows.part) < std::pair(b.rows.layer, b.rows.part);
  });
  for (LayerPart& part : parts_) part.bound = EntropyBound(part.rows);
  if (!parts_.empty()) return Status();
  return FailedPrecondition(
      fmt::format("{}: no entry is left: {} failed, {} skipped (f32, --strict)", options_.folder,
                  failed_, skipped_));
}

void LosslessEvaluation::Evaluate(const std::string& mode, CodecKind kind, LayerPart& part) {
  const int64_t tokens = part.rows.num_tokens;
  std::vector<TokenSpan> spans = part.pieces;
  DictionaryScope scope = DictionaryScope::kEachSpan;
  if (mode == "aggregate") {
    spans = {{0, tokens}};
    scope = DictionaryScope::kAll;
  } else if (mode == "chunked") {
    spans = CutSpans(0, tokens, 0, options_.chunk);
  } else if (mode == "chunked_grouped") {
    spans = CutSpans(0, tokens, options_.bootstrap, options_.group);
    scope = DictionaryScope::kRunning;
  }
  CodecRun run(kind, part.rows, std::move(spans), scope);
  const Status checked = run.Check();
  if (!checked.ok()) {
    WriteNote(fmt::format("varve: layer {} {}: {}\n", part.rows.layer, PartName(part.rows.part),
                          checked.message()));
    ++part.failed;
    ++failed_;
    return;
  }
  double encode_s = run.TimeEncode(), decode_s = run.TimeDecode();
  for (int rep = 1; rep < options_.reps; ++rep) {
    encode_s = std::min(encode_s, run.TimeEncode());
    decode_s = std::min(decode_s, run.TimeDecode());
  }
  const char* codec = kind == CodecKind::kGear ? "gear" : "varve";
  const double raw = static_cast<double>(run.raw_bytes());
  const char* dtype = LaneName(part.rows.lane);
  table_.AddRow({mode, fmt::format("{}", part.rows.layer), PartName(part.rows.part), dtype, codec,
                 fmt::format("{:.4f}", run.ratio()), fmt::format("{:.4f}", part.bound),
                 fmt::format("{:.1f}%", 100 * run.ratio() / part.bound),
                 fmt::format("{:.2f}", raw / encode_s / 1e9),
                 fmt::format("{:.2f}", raw / decode_s / 1e9)});
  rows_.push_back({{"mode", mode},
                   {"codec", codec},
                   {"part", PartName(part.rows.part)},
                   {"dtype", dtype},
                   {"layer", part.rows.layer},
                   {"ratio", run.ratio()},
                   {"bound", part.bound},
                   {"encode_gbps", raw / encode_s / 1e9},
                   {"decode_gbps", raw / decode_s / 1e9},
                   {"raw_bytes", run.raw_bytes()},
                   {"packed_bytes", run.packed_bytes()},
                   {"dictionary_bytes", run.dictionary_bytes()},
                   {"tokens", tokens}});
  Total& total = totals_[{mode, codec}];
  total.raw += run.raw_bytes();
  total.packed += run.packed_bytes();
  if (part.rows.layer < 2) {
    total.front_raw += run.raw_bytes();
    total.front_packed += run.packed_bytes();
  }
}

void LosslessEvaluation::ReportTotals() const {
  TextTable table({"mode", "codec", ">all layers", ">layers 0 and 1"});
  const auto ratio = [](uint64_t raw, uint64_t packed) {
    return packed == 0
               ? std::string("-")
               : fmt::format("{:.4f}", static_cast<double>(raw) / static_cast<double>(packed));
  };
  for (const auto& [key, total] : totals_) {
    table.AddRow({key.first, key.second, ratio(total.raw, total.packed),
                  ratio(total.front_raw, total.front_packed)});
  }
  fmt::print(out_, "\n");
  table.Print(out_);
}

Status LosslessEvaluation::Measure() {
  VARVE_RETURN_IF_ERROR(Load());
  const InterruptScope interrupt;
  Progress progress("lossless", static_cast<double>(2 * options_.modes.size() * parts_.size()));
  int done = 0;
  for (const std::string& mode : options_.modes) {
    for (LayerPart& part : parts_) {
      for (const CodecKind kind : {CodecKind::kGear, CodecKind::kVarve}) {
        if (InterruptScope::interrupted()) break;
        progress.Update(done++, mode);
        Evaluate(mode, kind, part);
      }
    }
  }
  progress.Clear();
  table_.Print(out_);
  ReportTotals();
  fmt::print(out_,
             "\nbound: H(high byte | channel) + H(low byte), estimated from {} tokens; ratios "
             "include headers and\ndictionaries. {} entries failed, {} skipped (f32, --strict)\n",
             parts_[0].rows.num_tokens, failed_, skipped_);
  if (InterruptScope::interrupted()) {
    fmt::print(out_, "interrupted: what was measured so far is above\n");
  }
  return Status();
}

}  // namespace

Status EvaluateLossless(const LosslessOptions& options) {
  return LosslessEvaluation(options).Run();
}

}  // namespace varve::cli

void AddLosslessCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("lossless", "What lossless packing saves on a KV dump");
  auto options = std::make_shared<varve::cli::LosslessOptions>();
  command->add_option("dir", options->folder, "Folder that `varve dump` wrote")
      ->required()
      ->type_name("DIR");
  command->add_option("--modes", options->modes, "What is packed together, separated by spaces")
      ->default_str(fmt::format("{}", fmt::join(options->modes, " ")))
      ->check(CLI::IsMember({"per_meta", "aggregate", "chunked", "chunked_grouped"}));
  command->add_option("--chunk", options->chunk, "Tokens of a chunk (mode chunked)")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--bootstrap", options->bootstrap,
                   "Tokens of the first piece (mode chunked_grouped)")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--group", options->group, "Tokens of the others (mode chunked_grouped)")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--strict", options->strict,
                    "Skip and count f32 pieces; without it they are rounded to f16 first");
  command->add_option("--reps", options->reps, "Repetitions of the timing; the best counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "Two codecs, each entry unpacked and compared first: gear is the frame of byte lanes with\n"
      "predictors, RLE and zstd; varve packs pages of 64 tokens, with a dictionary per layer and\n"
      "part. Modes, by what is packed together:\n"
      "  per_meta         a piece of the dump\n"
      "  aggregate        a whole layer (varve: one dictionary, from all pages)\n"
      "  chunked          --chunk tokens (varve: a dictionary of their own)\n"
      "  chunked_grouped  a running cache: --bootstrap, then --group tokens (varve: dictionaries\n"
      "                   come from the groups so far, as in the cache)\n\n"
      "Examples:\n"
      "  varve dump --ctx 4096 -o kv && varve lossless kv\n"
      "  varve lossless kv --modes aggregate --json out.json");
  command->callback(varve::cli::Action(options, varve::cli::EvaluateLossless, exit_code));
}
