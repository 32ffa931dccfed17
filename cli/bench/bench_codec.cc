#include "cli/bench/bench_codec.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>

#include "cli/bench/bench_report.h"
#include "cli/interrupt.h"
#include "cli/lossless/codec_runs.h"
#include "cli/lossless/dump_command.h"
#include "cli/lossless/kv_dump.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "kernels/kernels.h"

namespace varve::cli {
namespace {

// One codec on one layer and part, and its times.
struct Measured {
  CodecRun run;
  bool noise = false;  // the baseline a second time
  std::vector<double> encode_s, decode_s;
};

// Sums over layers.
struct Group {
  double raw = 0, packed = 0, bound_bits = 0, encode_s = 0, decode_s = 0;

  void Add(const Measured& measured, double bound) {
    const double bytes = static_cast<double>(measured.run.raw_bytes());
    raw += bytes;
    packed += static_cast<double>(measured.run.packed_bytes());
    bound_bits += bytes / bound;
    encode_s += Median(measured.encode_s);
    decode_s += Median(measured.decode_s);
  }
};

// All parts of one precision: front layers, then the deep ones, each K and V; all codecs.
class CodecSums {
 public:
  void Add(const DumpRows& rows, double bound, const std::vector<Measured>& measured);
  void Print(std::FILE* out) const;

 private:
  std::vector<Group> groups_[4];                    // [front k, front v, deep k, deep v][codec]
  std::vector<std::pair<CodecKind, bool>> codecs_;  // and whether it is the noise row
  double worst_share_ = 1e9;                        // of the bound, deep layers
  std::string worst_;
};

void CodecSums::Add(const DumpRows& rows, double bound, const std::vector<Measured>& measured) {
  const bool is_deep = rows.layer >= 2;
  std::vector<Group>& group = groups_[(is_deep ? 2 : 0) + (rows.part == Part::kKey ? 0 : 1)];
  group.resize(measured.size());
  codecs_.clear();
  for (size_t j = 0; j < measured.size(); ++j) {
    group[j].Add(measured[j], bound);
    codecs_.emplace_back(measured[j].run.kind(), measured[j].noise);
  }
  const double share = measured.back().run.ratio() / bound;
  if (!is_deep || share >= worst_share_) return;
  worst_share_ = share;
  worst_ = fmt::format("layer {} {}: {:.4f} of {:.4f}, {:.1f} %", rows.layer, PartName(rows.part),
                       measured.back().run.ratio(), bound, 100 * share);
}

void CodecSums::Print(std::FILE* out) const {
  TextTable table(
      {"codec", "layers", "part", ">ratio", ">bound", ">encode GB/s", ">decode GB/s", ">x zstd-3"});
  double front_raw = 0, front_packed = 0;
  for (size_t g = 0; g < 4; ++g) {
    for (size_t j = 0; j < groups_[g].size(); ++j) {
      const Group& sum = groups_[g][j];
      table.AddRow(
          {fmt::format("{}{}", CodecName(codecs_[j].first), codecs_[j].second ? " A/A" : ""),
           g < 2 ? "0-1" : "2-", g % 2 == 0 ? "k" : "v",
           fmt::format("{:.4f}", sum.raw / sum.packed),
           fmt::format("{:.4f}", sum.raw / sum.bound_bits),
           fmt::format("{:.2f}", sum.raw / sum.encode_s / 1e9),
           fmt::format("{:.2f}", sum.raw / sum.decode_s / 1e9),
           fmt::format("{:.2f}", groups_[g][0].decode_s / sum.decode_s)});
    }
    if (g < 2 && !groups_[g].empty()) {
      front_raw += groups_[g].back().raw;
      front_packed += groups_[g].back().packed;
    }
  }
  table.Print(out);
  if (front_packed > 0) {
    fmt::print(out, "varve, layers 0 and 1 together: {:.4f}\n", front_raw / front_packed);
  }
  if (!worst_.empty()) fmt::print(out, "varve, deep layer furthest from its bound: {}\n", worst_);
}

class CodecBench {
 public:
  explicit CodecBench(const BenchCodecOptions& options)
      : options_(options), out_(options.json == "-" ? stderr : stdout) {}

  Status Run() {
    VARVE_RETURN_IF_ERROR(CheckWritable("--json", options_.json));
    return FinishJson(Measure(), options_.json, "bench codec", rows_);
  }

 private:
  Status Measure();
  Status RunType(const LoadedModel& model, const std::vector<int32_t>& tokens, Executor& executor,
                 store::LaneType lane);
  Status RunPart(const DumpRows& rows, double bound, std::vector<Measured>& measured);
  void AddJson(const DumpRows& rows, double bound, const Measured& measured);

  const BenchCodecOptions& options_;
  std::FILE* out_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

Status CodecBench::RunPart(const DumpRows& rows, double bound, std::vector<Measured>& measured) {
  // The baselines, too, work on frames of a page: a cache restores pages.
  const std::vector<TokenSpan> pages = CutSpans(0, rows.num_tokens, 0, kPageRows);
  const auto add = [&](CodecKind kind, bool noise) {
    measured.push_back({CodecRun(kind, rows, pages), noise, {}, {}});
    return measured.back().run.Check();
  };
  VARVE_RETURN_IF_ERROR(add(CodecKind::kZstd, false));
  VARVE_RETURN_IF_ERROR(add(CodecKind::kZstd, true));
  for (const CodecKind kind : {CodecKind::kLz4, CodecKind::kGear, CodecKind::kVarveNoTables,
                               CodecKind::kVarveQuick, CodecKind::kVarve}) {
    VARVE_RETURN_IF_ERROR(add(kind, false));
  }
  for (int rep = 0; rep < options_.reps; ++rep) {
    for (Measured& one : measured) {
      // The slow encoders are timed once or twice: their figure is not the point.
      if (rep < 2 || one.run.kind() == CodecKind::kVarve ||
          one.run.kind() == CodecKind::kVarveQuick) {
        one.encode_s.push_back(one.run.TimeEncode());
      }
      one.decode_s.push_back(one.run.TimeDecode());
    }
  }
  for (const Measured& one : measured) AddJson(rows, bound, one);
  return Status();
}

void CodecBench::AddJson(const DumpRows& rows, double bound, const Measured& measured) {
  const double raw = static_cast<double>(measured.run.raw_bytes());
  nlohmann::ordered_json row = {{"mode", CodecName(measured.run.kind())},
                                {"part", PartName(rows.part)},
                                {"dtype", LaneName(rows.lane)},
                                {"layer", rows.layer},
                                {"ratio", measured.run.ratio()},
                                {"bound", bound},
                                {"encode_gbps", raw / Median(measured.encode_s) / 1e9},
                                {"decode_gbps", raw / Median(measured.decode_s) / 1e9},
                                {"dictionary_bytes", measured.run.dictionary_bytes()},
                                {"tokens", rows.num_tokens}};
  if (measured.noise) row["role"] = "noise";
  rows_.push_back(std::move(row));
}

Status CodecBench::RunType(const LoadedModel& model, const std::vector<int32_t>& tokens,
                           Executor& executor, store::LaneType lane) {
  Progress progress(fmt::format("bench codec {}", LaneName(lane)), 1.0);
  VARVE_ASSIGN_OR_RETURN(
      const std::vector<DumpRows> dump, DumpModel(model, executor, tokens, lane, [&](int64_t done) {
        progress.Update(0.3 * static_cast<double>(done) / static_cast<double>(tokens.size()));
        return !InterruptScope::interrupted();
      }));
  CodecSums sums;
  for (size_t i = 0; i < dump.size() && !InterruptScope::interrupted(); ++i) {
    progress.Update(0.3 + 0.7 * static_cast<double>(i) / static_cast<double>(dump.size()));
    const double bound = EntropyBound(dump[i]);
    std::vector<Measured> measured;
    VARVE_RETURN_IF_ERROR(RunPart(dump[i], bound, measured));
    sums.Add(dump[i], bound, measured);
  }
  progress.Clear();
  fmt::print(out_, "\n{}, {} tokens\n", LaneName(lane), tokens.size());
  sums.Print(out_);
  return Status();
}

Status CodecBench::Measure() {
  std::vector<store::LaneType> lanes;
  for (const std::string& text : options_.dtypes) {
    VARVE_ASSIGN_OR_RETURN(const store::LaneType lane, ParseLane("--dtypes", text));
    lanes.push_back(lane);
  }
  VARVE_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options_.model));
  VARVE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                         ReadTextTokens(model, options_.text, options_.ctx));
  const std::unique_ptr<Executor> executor = MakeThreadPool(options_.threads);
  fmt::print(out_, "{}; isa {}; pages of {} tokens, one core\n", model.name, ActiveKernels().name,
             kPageRows);
  const InterruptScope interrupt;
  for (const store::LaneType lane : lanes) {
    if (!InterruptScope::interrupted()) {
      VARVE_RETURN_IF_ERROR(RunType(model, tokens, *executor, lane));
    }
  }
  if (InterruptScope::interrupted()) {
    fmt::print(out_, "interrupted: what was measured so far is above\n");
  }
  return Status();
}

}  // namespace

Status BenchCodec(const BenchCodecOptions& options) { return CodecBench(options).Run(); }

void AddBenchCodec(CLI::App& bench, int* exit_code) {
  CLI::App* command =
      bench.add_subcommand("codec", "Lossless packing of a model's keys and values, per codec");
  auto options = std::make_shared<BenchCodecOptions>();
  AddModelOption(*command, options->model);
  command
      ->add_option("-f,--file", options->text,
                   "Text, - for stdin (default: the evaluation text of the embedded model)")
      ->type_name("FILE");
  command->add_option("--ctx", options->ctx, "Tokens of the text to read")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--dtypes", options->dtypes, "Precisions of the cache: f16 bf16 f32")
      ->default_str(fmt::format("{}", fmt::join(options->dtypes, " ")));
  command->add_option("--reps", options->reps, "Repetitions, all codecs interleaved")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--threads", options->threads, "Threads of the model (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "The model reads the text; K and V of every layer are packed page by page and unpacked, on "
      "one core.\nWhat comes back is compared before timing; varve also checks its checksums while "
      "timed. zstd-3 is timed\ntwice in each repetition: the row A/A shows the noise of the "
      "machine. Rates are of raw bytes; ratios include\nheaders and the dictionaries of varve "
      "(one per layer and part). varve-quick: the form that\nunpacks quickly, as a running cache "
      "has it; varve-alone: pages without a dictionary.\nbound: 16 bits / "
      "(H(high byte | channel) + H(low byte)), measured.\n\n"
      "Examples:\n"
      "  varve bench codec\n"
      "  varve bench codec -m model.gguf -f book.txt --ctx 4096 --dtypes f16 --json out.json");
  command->callback(Action(options, BenchCodec, exit_code));
}

}  // namespace varve::cli
