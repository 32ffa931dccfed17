// Plan: how a cache stores its pages, as a value.
//
// A plan says, per layer range, which rung (representation) sealed pages take, how that changes
// with age, what stays open, and which retention, packing or learned method applies; and once for
// the whole cache its page size and where its packed pages go. It is the type behind `--kv` on the
// command line:
//
//   q8_0                               every sealed page in q8_0
//   k=q8_0,v=q4_0r                     K and V apart
//   age=f16:512/q8_0:4096/q4_0         by age in tokens
//   t4,idle=t3                         lower, once a program puts a sequence to rest
//   0-1: f16; 2-: q4_0r,open=128       by layer range
//
// Parsing knows the whole grammar; whether this build can do what a plan asks is decided by
// Cache::Create (and CheckSupported), which refuses by name. Pure values, no state, thread-safe.

#ifndef VARVE_PLAN_H_
#define VARVE_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "varve/export.h"
#include "varve/status.h"

namespace varve {

// One stage of an age ladder: a page is stored in `rung` while its age < until_tokens.
// Age of a page = next position of the sequence - end position of the page.
struct AgeStep {
  std::string rung;
  int64_t until_tokens = -1;  // -1: no bound, only in the last stage
  bool operator==(const AgeStep&) const = default;
};

// pack=: what is done with cold pages. Packed to learn how small they get; packed, with the raw
// bytes kept beside; packed in place of the raw bytes.
enum class PackingMode { kProbe, kFull, kStore };

// pack_codec=: our own packed parts, or frames of the "gear predictive" format of the H2O system.
enum class PackCodec { kVarve, kGear };

// fold_positions=: folded rows keep the positions of their tokens, or count as tokens of their own.
enum class FoldPositions { kTrue, kRestart };

// What holds for the layers [first_layer, last_layer]. An empty optional is "not said".
struct LayerRule {
  int first_layer = 0;
  int last_layer = -1;  // inclusive; -1 is the model's last layer

  std::optional<std::string> k;  // rung of sealed K; without it `age`, without that f16
  std::optional<std::string> v;
  std::vector<AgeStep> age;  // for the parts that k= and v= leave open; bounds ascend
  // idle=RUNG sets both: what Cache::Rest brings pages to. A part that is not said stays as it is.
  std::optional<std::string> idle_k;
  std::optional<std::string> idle_v;

  std::optional<int64_t> open_tokens;    // open=N
  std::optional<std::string> open_rung;  // open_rung=f16|f32|bf16
  std::optional<int64_t> exact_tokens;   // exact=N: pages of the first N tokens keep the open rung
  std::optional<int64_t> window_tokens;  // window=N

  std::optional<std::string> evict;       // h2o|window|random|tova|snapkv|demote
  std::optional<double> ratio;            // > 1
  std::optional<uint64_t> budget_bytes;   // budget=64MiB; excludes ratio
  std::optional<int64_t> sink_tokens;     // sink=N
  std::optional<int64_t> recent_tokens;   // recent=N
  std::optional<int64_t> trigger_tokens;  // trigger=N
  std::optional<int64_t> every_tokens;    // every=N
  std::optional<double> ema;              // ema=A, 0 <= A < 1

  std::optional<PackingMode> pack;         // pack=probe|full|store
  std::optional<int64_t> hot_sink_tokens;  // hot=S/R
  std::optional<int64_t> hot_recent_tokens;
  std::optional<int64_t> bootstrap_tokens;  // bootstrap=N
  std::optional<int64_t> step_tokens;       // step=N
  std::optional<PackCodec> pack_codec;      // pack_codec=varve|gear
  std::optional<std::string> predictors_k;  // predictors_k=raw/delta_seq/…, of gear
  std::optional<std::string> predictors_v;
  std::optional<int64_t> pack_zstd;          // pack_zstd=0|1, of gear; 0: RLE alone
  std::optional<int64_t> pack_block_tokens;  // pack_block=N, rounded up to whole pages
  std::optional<int64_t> strict;             // strict=0|1
  std::optional<int64_t> layer_cache_pages;  // layer_cache=N restored pages of a layer's own
  std::optional<int64_t> sample_layers;      // sample_layers=N of the rule, with pack=probe
  std::optional<int64_t> sample_tokens;      // sample_every=N tokens, likewise

  std::optional<std::string> codebook;    // codebook=FILE
  std::optional<std::string> fold;        // fold=FILE, or fold=shipped: the one of the model
  std::optional<int64_t> image_tokens;    // image=N
  std::optional<std::string> fold_order;  // order of blocks in a file that does not say it
  std::optional<std::string> cross;       // cross=RUNG
  std::optional<std::string> fallback;    // fallback=RUNG

  bool operator==(const LayerRule&) const = default;
};

// What holds for the whole cache. In the text any rule may say it; the canonical text says it in
// the first one. Rules must agree, but for counts: there the largest holds.
struct PlanSettings {
  std::optional<int> page_tokens;  // page=16|32|64|128

  std::optional<int64_t> pack_threads;        // pack_threads=N, 1 … 64
  std::optional<int64_t> pack_queue;          // pack_queue=N groups
  std::optional<int64_t> decode_cache_pages;  // decode_cache=N pages
  std::optional<int64_t> prefetch;            // prefetch=0|1
  std::optional<std::string> spill;           // spill=FILE: packed pages beyond keep_mib go there
  std::optional<int64_t> spill_mib;           // spill_mib=N: its cap
  std::optional<int64_t> keep_mib;            // keep_mib=N of packed bytes stay in memory

  std::optional<int64_t> log_stats;  // log_stats=0|1: lines for CacheOptions::log

  std::optional<FoldPositions> fold_positions;  // fold_positions=true|restart

  bool operator==(const PlanSettings&) const = default;
};

struct Plan {
  std::vector<LayerRule> rules;  // ascending, disjoint; layers that no rule covers are f16
  PlanSettings settings = {};

  bool operator==(const Plan&) const = default;

  // The page size that the plan asks for, or the default of 64.
  VARVE_API int PageTokens() const;
};

// Parses the text form: rules joined by ";", each "LAYERS: " and clauses joined by ",". On failure
// the message quotes the offending clause and its column (in bytes, from 1):
//   plan: clause 2 "k=q9_0" (column 7): unknown rung "q9_0"; known: f32 f16 ...
// Blank text is the empty plan: f16 in every layer. Rules come out sorted by layer.
//
// A file name (codebook=, fold=) stands as it is, or in double quotes if it has blanks, commas,
// semicolons, colons, quotes or backslashes in it; inside the quotes a backslash stands before a
// quote or backslash: codebook="my \"best\", 8 bits.bin". File names are UTF-8 without NUL.
//
// Text beyond 64 KiB is refused. "@file.json" is not read here (no file access in the library): see
// ParsePlanJson.
VARVE_API Result<Plan> ParsePlan(std::string_view text);

// Parses the JSON form: one flat rule {"k": "q8_0", "open": 128} or {"rules": [{"layers": "0-1",
// "kv": "f16"}, ...]}. Keys are the names of the clauses; counts are integers, ratio and ema
// numbers, budget either; all else is a string as in the text form (a file name without quotes).
// A flat object may also hold the keys of the H2O system (kv_h2o_*, kv_lossless_*), which may
// become several rules; a key of that system whose feature has no clause yet is kUnimplemented.
// An unknown or repeated key is an error that names it. JSON beyond 64 KiB is refused.
VARVE_API Result<Plan> ParsePlanJson(std::string_view json);

// The canonical text: ParsePlan(PrintPlan(p)) == p for every p that the parsers can give. (They
// never give a rule that says nothing of its layers; where a plan built by hand has one, the layers
// are f16.)
VARVE_API std::string PrintPlan(const Plan& plan);

// The JSON form, one line; ParsePlanJson(PrintPlanJson(p)) == p.
VARVE_API std::string PrintPlanJson(const Plan& plan);

// Ok if this build can run the plan. Otherwise kUnimplemented, naming the first clause that has
// no implementation yet ("evict=h2o").
VARVE_API Status CheckSupported(const Plan& plan);

}  // namespace varve

#endif  // VARVE_PLAN_H_
