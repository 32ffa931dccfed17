// Cache: the keys and values of a transformer, in pages that sink to cheaper representations.
//
// A cache holds any number of sequences of one model. Per layer, a sequence is a table of pages;
// a page holds page_tokens consecutive tokens, one strip of K rows and one of V rows per KV head.
// New rows go into an open page in f16 (or f32, bf16); a full page that leaves the open window is
// sealed: encoded once in the rung that the plan names, immutable and shared from then on.
// Attention is computed on the stored bytes, for all query heads of a KV head at once.
//
// One decode step, for any number of sequences; each call returns a Status to be checked:
//
//   cache->BeginStep({&entry, 1});                  // reserves all memory, or changes nothing
//   for each layer:
//     cache->Append(layer, sequence, keys, values); // rows after RoPE
//     cache->Attend(layer, {&request, 1}, options); // reads every row appended so far
//   cache->EndStep();                               // commits; seals, demotes, drops what is due
//
// An error of Append, Attend or EndStep inside a step rolls the step back and closes it: layers
// never end at different lengths. (A call that has no business inside a step, such as a second
// BeginStep, is refused and leaves the step open.)
//
// What a query sees: each page in the state it would have if tokens had come one at a time. A step
// therefore may hold at most MaxStepTokens(seq) tokens of a sequence (up to page_tokens): longer
// inputs are fed in several steps, and prefill and decode then agree bit for bit.
//
// Thread-safety: one thread at a time may use a Cache (const calls included); the cache spreads
// its own work over the executor. Different caches are independent.

#ifndef VARVE_CACHE_H_
#define VARVE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/codebook.h"
#include "varve/compressor.h"
#include "varve/executor.h"
#include "varve/part.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

// The part of a model that the cache must know. Limits are checked by Cache::Create.
struct CacheShape {
  int num_layers = 0;    // 1 … 1024
  int num_kv_heads = 0;  // 1 … 1024
  int group_size = 1;    // query heads per KV head, 1 … 64
  int key_dim = 0;       // head_dim of K; a multiple of 16 up to 512; block rungs: of 32
  int value_dim = 0;     // head_dim of V; likewise
  int page_tokens = 0;   // 16, 32, 64 or 128; 0: what the plan says (64 unless it says otherwise)
};

// Where slabs of pages come from. The default maps anonymous memory. Not called concurrently.
class PageMemory {
 public:
  virtual ~PageMemory() = default;
  // `bytes` (a multiple of 2 MiB) of readable and writable memory, aligned to 4 KiB at least; null
  // when there is none.
  virtual std::byte* Map(size_t bytes) = 0;
  // Gives the physical memory of a part of a mapping back; the range stays usable, its content is
  // lost. `bytes` is a multiple of 4 KiB.
  virtual void Discard(std::byte* address, size_t bytes) = 0;
  virtual void Unmap(std::byte* address, size_t bytes) = 0;
};

// Identifies a sequence of one cache. Ids are never reused: a freed id stays invalid.
struct SequenceId {
  uint64_t value = 0;
  bool operator==(const SequenceId&) const = default;
};

// One page of a sequence's table in one layer, as seen by an observer or by Describe.
struct PageSpan {
  int64_t first_position = 0;  // token span that the page stands for
  int64_t num_positions = 0;
  int num_rows = 0;       // rows stored
  int num_live_rows = 0;  // rows that attention still sees
};

// The exact attention mass of every page, from the log-sum-exp that attention keeps anyway.
struct AttentionMass {
  int layer = 0;
  SequenceId sequence;
  int64_t first_position = 0;  // of query 0; the others follow
  int num_queries = 0;
  int num_heads = 0;                // query heads
  std::span<const PageSpan> pages;  // the table as it was read
  // [num_queries, num_heads, pages.size()] f32. Each (query, head) row sums to 1; it is all zeros
  // for a query that sees nothing.
  const float* mass = nullptr;
};

// Told about every Attend of a cache, on the calling thread, one request at a time, in pieces of at
// most 1024 queries. It must not call the cache. The data is
// valid during the call only.
class AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  virtual void OnAttention(const AttentionMass& mass) = 0;
};

// What a retention policy (evict=) has done to one page.
enum class PageFate { kKept, kDemoted, kDropped };

struct PageDecision {
  PageSpan page;
  double score = 0;  // what the policy ranks by: mean attention mass per query and head, or its own
  PageFate fate = PageFate::kKept;
  std::string rung;  // that the page has now; empty if it was dropped
};

struct RetentionEvent {
  SequenceId sequence;
  int layer = 0;
  int64_t next_position = 0;
  std::vector<PageDecision> pages;  // the table as it was before, ascending
  uint64_t target_bytes = 0;        // of the layer
  uint64_t held_bytes = 0;          // after
  bool floors_bind = false;         // sink and recent alone exceed the target
};

// Told when a retention plan is carried out, on the calling thread. It must not call the cache.
class RetentionObserver {
 public:
  virtual ~RetentionObserver() = default;
  virtual void OnRetention(const RetentionEvent& event) = 0;
};

struct CacheOptions {
  Plan plan;
  // For pq rungs, where the plan names no codebook=FILE. Null: such a plan is refused.
  std::shared_ptr<const Codebook> codebook;
  // For fold=shipped. Null: such a plan is refused.
  std::shared_ptr<const Compressor> compressor;
  // Of the model that feeds the cache: a codebook of another one is refused. 0: not said.
  uint64_t model_fingerprint = 0;
  // Cap on what pages hold, packed ones and the decode cache included, dictionaries not; 0 is none.
  // A step that would pass it is refused whole.
  uint64_t max_bytes = 0;
  int num_threads = 0;                              // size of the cache's own pool; 0: one per core
  Executor* executor = nullptr;                     // not owned; replaces the own pool
  PageMemory* memory = nullptr;                     // not owned; replaces anonymous mappings
  AttentionObserver* observer = nullptr;            // not owned
  RetentionObserver* retention_observer = nullptr;  // not owned
  bool time_stages = false;  // fill CacheStats::stages; results do not change
};

struct StepEntry {
  SequenceId sequence;
  int num_tokens = 1;
};

// f32 rows [num_tokens, num_kv_heads, dim]; strides in floats, 0 means dense. Not owned.
struct RowsView {
  const float* data = nullptr;
  int num_tokens = 0;
  ptrdiff_t token_stride = 0;
  ptrdiff_t head_stride = 0;
};

// The queries of one sequence in one Attend. Inside a step they belong to the last num_queries
// tokens of the sequence's step; outside a step, to the last num_queries positions.
struct AttendRequest {
  SequenceId sequence;
  int num_queries = 1;
  // [num_queries, num_kv_heads * group_size, key_dim] f32, after RoPE. Query heads h*group_size …
  // (h+1)*group_size-1 share KV head h. Strides in floats, 0 means dense.
  const float* queries = nullptr;
  ptrdiff_t query_token_stride = 0;
  ptrdiff_t query_head_stride = 0;
  // [num_queries, num_kv_heads * group_size, value_dim] f32. A query that sees no row gives zeros.
  float* output = nullptr;
  ptrdiff_t output_token_stride = 0;
  ptrdiff_t output_head_stride = 0;
  // Optional: [num_queries, num_kv_heads * group_size] log-sum-exp of the scaled scores.
  float* log_sum_exp = nullptr;
};

struct AttendOptions {
  float scale = 0.0f;     // 0: 1 / sqrt(key_dim)
  float soft_cap = 0.0f;  // > 0: scores become cap * tanh(score / cap)
  int64_t window = 0;     // > 0: the model's own sliding window, row-exact; also without causal
  bool causal = true;     // false: every query sees every row (cross attention)
};

enum class PageState { kFilling, kFull, kSealed, kPacked };

struct RungBytes {
  std::string rung;  // "q8_0", or "q8_0/q4_0" where K and V differ
  PageState state = PageState::kSealed;
  uint64_t pages = 0;
  uint64_t bytes = 0;  // payload of those pages
};

// What the plan's policies did. Parts and ratios are of the layers that have a policy, over all
// sequences that live now; counts are since creation.
struct RetentionStats {
  int layers = 0;            // with a policy; if 0, nothing else here means anything
  uint64_t plans = 0;        // carried out
  uint64_t plans_stale = 0;  // dropped: the table had changed since
  uint64_t plans_bound = 0;  // carried out, but sink and recent alone exceeded the target
  uint64_t pages_evicted = 0;
  uint64_t pages_demoted = 0;        // by score
  uint64_t tokens_evicted = 0;       // summed over layers
  uint64_t tokens_evicted_last = 0;  // by the last step that evicted, summed over layers
  uint64_t plan_bytes = 0;           // of the spans in force
  double plan_us = 0;                // scoring, planning and carrying out
  double keep_ratio = 1;             // live tokens / tokens seen
  double lossy_ratio = 1;            // f16 bytes of all tokens seen / bytes held and plan bytes
  double lossy_ratio_run = 1;        // the same, summed over the steps after the first plan
  double target_keep = 1;     // means over the last plans of the layers: what the target asks,
  double effective_keep = 1;  // what the floors raise it to,
  double kept_part = 1;       // what whole pages make of it
  double floor_keep = 0;      // part that sink and recent take
};

// What lossless packing (pack=) did. Counts are since creation.
struct LosslessStats {
  int layers = 0;             // with pack=; if 0, nothing else here means anything
  uint64_t pages_packed = 0;  // in mode store: replaced; full and probe: tried
  uint64_t pages_without_gain = 0;
  uint64_t raw_bytes = 0;         // of all those pages
  uint64_t compressed_bytes = 0;  // what came of them
  uint64_t pages_now = 0;         // packed at this moment,
  uint64_t raw_bytes_now = 0;     // their raw
  uint64_t packed_bytes_now = 0;  // and packed bytes,
  uint64_t dictionary_bytes = 0;  // and the dictionaries that they share
  double compress_us = 0;         // of the workers
  double decompress_us = 0;       // of all threads
  uint64_t decompressed_bytes = 0;
  uint64_t fallbacks = 0;            // pages left raw because packing failed
  uint64_t backpressure_skips = 0;   // groups put off because the queue was full
  uint64_t restore_failures = 0;     // packed pages that could not be read
  uint64_t queue_peak = 0;           // groups waiting at once
  double wait_us = 0;                // that steps waited for workers
  uint64_t decode_cache_hits = 0;    // pages whose raw strips were there when a layer was read
  uint64_t decode_cache_misses = 0;  // pages that were unpacked strip by strip, or then restored
  uint64_t strips_unpacked = 0;      // by attention, on the way
  uint64_t pages_restored = 0;       // into the decode cache
  uint64_t pages_prefetched = 0;     // of those, by workers ahead of their layer
  uint64_t decode_cache_bytes = 0;   // held for it now
  uint64_t pages_spilled = 0;  // of the pages packed now, those whose bytes are in the spill file,
  uint64_t bytes_spilled = 0;  // and these; not in bytes_held
  uint64_t spill_refused = 0;  // times that the spill file had no room: pages stayed in memory
};

// What the learned compressor (fold=) did, since creation; summed over the layers that fold.
struct FoldStats {
  int layers = 0;                // with fold=; if 0, nothing else here means anything
  uint64_t prompts = 0;          // that were folded
  uint64_t prompts_skipped = 0;  // that ended with EndPromptOptions::fold = false
  uint64_t tokens = 0;           // of those prompts
  uint64_t rows = 0;             // that they have become,
  uint64_t rows_raw = 0;         // of which so many are tokens as they were
  uint64_t bytes_before = 0;     // held by the pages that were folded,
  uint64_t bytes_after = 0;      // and by the new ones when they were made, in the open rung
  double fold_us = 0;
};

// Time by stage, summed over threads, since creation; all zero without CacheOptions::time_stages.
// Unpacking (pack=) lies within the stage that reads. What is no stage of the rungs (tables,
// policies, waiting for threads) is nowhere here.
struct StageTimes {
  double prepare_us = 0;       // queries into the key spaces: blocks, rotations, lookup tables
  double scores_us = 0;        // queries against keys
  double softmax_us = 0;       // weights of the scores
  double values_us = 0;        // weighted values
  double merge_us = 0;         // splits joined, value spaces brought together
  double encode_us = 0;        // rows of pages that are sealed or demoted, their decoding included
  double append_us = 0;        // new rows into the open page
  uint64_t attend_passes = 0;  // calls of Attend; long prompts take several passes
  uint64_t rows_encoded = 0;   // K rows and V rows, of every KV head
  uint64_t rows_appended = 0;  // likewise
};

// Where the plan's fallback= had to take the place of the rung that was asked for.
struct FallbackUse {
  int first_layer = 0;  // inclusive range
  int last_layer = 0;
  Part part = Part::kKey;
  std::string asked;   // "pq64x8"
  std::string used;    // "q4_0r"
  std::string reason;  // why the asked-for rung cannot run
};

struct CacheStats {
  uint64_t bytes_used = 0;      // payload of all live pages; a shared page counts once
  uint64_t bytes_held = 0;      // memory that is kept resident for pages; not the spill file
  uint64_t bytes_tables = 0;    // page records and tables
  uint64_t bytes_scratch = 0;   // work buffers of steps and attention
  uint64_t bytes_f16 = 0;       // what the live rows of all sequences would take in plain f16
  uint64_t bytes_f16_seen = 0;  // what all tokens that they have seen would take
  uint64_t bytes_copied = 0;    // copied on write since creation
  uint64_t pages = 0;
  uint64_t pages_unread = 0;  // of a file that was loaded, not asked for yet: they hold no memory,
  uint64_t bytes_unread = 0;  // and are in no other count; their payload
  uint64_t sequences = 0;
  uint64_t pages_sealed = 0;      // encoded since creation: first seal …
  uint64_t pages_demoted = 0;     // … and later steps down the ladder
  uint64_t pages_adopted = 0;     // took over the successor that another sequence had encoded
  uint64_t pages_dropped = 0;     // by window=, SlideWindow and policies, in all layers
  uint64_t nonfinite_values = 0;  // NaN or out-of-range values that a block rung replaced
  std::vector<RungBytes> rungs;   // by rung and state, in a fixed order
  // Tables of centroids that the plan uses, each once; a constant of the model, in no other count.
  uint64_t bytes_codebooks = 0;
  uint64_t bytes_compressors = 0;  // likewise, of the networks that fold
  std::vector<FallbackUse> fallbacks;
  RetentionStats retention;
  LosslessStats lossless;
  FoldStats fold;
  StageTimes stages;
};

struct SequenceInfo {
  int64_t next_position = 0;
  int64_t live_rows = 0;  // of the layer asked for
  std::vector<PageSpan> pages;
};

// A sequence with the ids of its tokens, which the cache does not know by itself. In the order in
// which they were fed; there may be fewer, or more: tokens that have not been fed yet.
struct SequenceTokens {
  SequenceId sequence;
  std::vector<int32_t> tokens;
};

struct SaveOptions {
  // What to save, in this order. Empty: every sequence, ascending, without token ids.
  std::vector<SequenceTokens> sequences;
  uint64_t model_fingerprint = 0;  // whatever tells models apart; 0: not said
  std::string model_name;          // for people; at most 1024 bytes
};

struct LoadOptions {
  uint64_t model_fingerprint = 0;  // that the file must have; 0: any
};

struct EndPromptOptions {
  bool fold = true;  // false: the rows of this prompt stay as they are, and are sealed as the plan
                     // says
};

// A place where a sequence can be cut (Truncate).
struct CutPoint {
  int64_t num_tokens = 0;  // that stay
  int64_t position = 0;    // for Truncate
};

class Cache {
 public:
  // Refuses a shape or plan that cannot work, naming field, value and limit.
  static Result<std::unique_ptr<Cache>> Create(const CacheShape& shape, CacheOptions options);
  virtual ~Cache() = default;

  // The shape in force, page_tokens filled in.
  virtual const CacheShape& shape() const = 0;
  virtual const Plan& plan() const = 0;

  // --- sequences; each call fails with kNotFound on a freed id. While a step is open, calls that
  // are not const fail with kFailedPrecondition ---

  virtual Result<SequenceId> CreateSequence() = 0;
  // A sequence with the same content. Shares every page; the open page is copied by whoever
  // appends to it first.
  virtual Result<SequenceId> Fork(SequenceId source) = 0;
  virtual Status Free(SequenceId sequence) = 0;
  // Forgets positions >= position. Rows inside a sealed page die; their bytes stay until the page
  // has no live row.
  virtual Status Truncate(SequenceId sequence, int64_t position) = 0;
  // Forgets positions in [begin, end). Other positions keep their numbers.
  virtual Status RemoveRange(SequenceId sequence, int64_t begin, int64_t end) = 0;
  // Forgets everything outside [begin, end); the next position does not change.
  virtual Status KeepOnly(SequenceId sequence, int64_t begin, int64_t end) = 0;
  // Drops every page that lies wholly before next_position - num_tokens, except pages that touch
  // the first sink_tokens positions. The plan's window= does this after each step.
  virtual Status SlideWindow(SequenceId sequence, int64_t num_tokens, int64_t sink_tokens) = 0;
  // The position that the next token will have; unchanged while a step is open.
  virtual Result<int64_t> NextPosition(SequenceId sequence) const = 0;
  // Tokens that the sequence has been fed: its next position, unless folding has restarted
  // positions (fold_positions=restart).
  virtual Result<int64_t> TokensSeen(SequenceId sequence) const = 0;
  // Where to cut so that at most the first num_tokens tokens stay; num_tokens counts as TokensSeen
  // does. Callers that know tokens and not positions need it: a folded row cannot be cut, so fewer
  // tokens may stay, and a prompt whose positions have restarted stays whole or goes.
  virtual Result<CutPoint> FindCut(SequenceId sequence, int64_t num_tokens) const = 0;
  // The pages of one layer. Inside a step live_rows counts the rows appended so far.
  virtual Result<SequenceInfo> Describe(SequenceId sequence, int layer) const = 0;

  // --- a step ---

  // How many tokens the next step of this sequence may hold: up to the end of its open page, or
  // to the next moment at which the plan seals, demotes or drops a page.
  virtual Result<int> MaxStepTokens(SequenceId sequence) const = 0;
  // Reserves memory in all layers for all entries. On failure nothing has changed.
  virtual Status BeginStep(std::span<const StepEntry> entries) = 0;
  // Appends rows of one layer; several calls may share the step's tokens of a sequence.
  virtual Status Append(int layer, SequenceId sequence, const RowsView& keys,
                        const RowsView& values) = 0;
  // Attention of all requests over one layer, in one parallel pass. Inside a step every sequence
  // asked for must have all of the step's rows in this layer.
  virtual Status Attend(int layer, std::span<const AttendRequest> requests,
                        const AttendOptions& options) = 0;
  // If the system has no memory to encode a page that is due, the step is committed all the same:
  // the page stays exact and is tried again at the end of the next step.
  virtual Status EndStep() = 0;
  // Rolls the open step back; nothing happens without one.
  virtual void AbortStep() = 0;
  // Says that what is appended from here on is a prompt, up to EndPrompt: layers with fold= keep it
  // exact and fold it then. A new sequence begins with a prompt; while one is open, this changes
  // nothing. Without the call, tokens behind EndPrompt are taken as generated and never folded.
  virtual Status BeginPrompt(SequenceId sequence) = 0;
  // Says that the open prompt is complete: layers with fold= are folded, all or none; policies that
  // look at the prompt's end decide. On failure (no memory for the folded pages beside the old
  // ones) nothing has changed and the prompt stays open: call again once there is room, or with
  // fold = false, which needs no memory.
  virtual Status EndPrompt(SequenceId sequence, const EndPromptOptions& options = {}) = 0;

  // --- content ---

  // Decodes the live rows of positions [begin, end) in one layer and KV head to f32, ascending;
  // `out` [rows, dim] must have room for end - begin rows. Returns the number of rows.
  virtual Result<int64_t> ReadRows(SequenceId sequence, int layer, int kv_head, Part part,
                                   int64_t begin, int64_t end, float* out) const = 0;

  virtual CacheStats Stats() const = 0;

  // Waits until every page that has been handed to the packing workers (pack=) is packed. Needed
  // for nothing but figures that can be repeated; results never depend on it.
  virtual void WaitForPacking() = 0;

  // --- files (docs/format/cache-file.md); not while a step is open. What a file is, without a
  // cache: varve/cache_file.h ---

  // Writes sequences to a file: pages as they are, in any mix of rungs and states, those that
  // sequences share once, and what policies know. The file appears whole or not at all, also if
  // the process or the machine dies; on an error (kIoError names path and reason) a file that was
  // there before is untouched and the cache goes on.
  virtual Status Save(const std::string& path, const SaveOptions& options) const = 0;
  // Adds the file's sequences to this cache, all or none, and gives their new ids and their token
  // ids, in the file's order. Shape and plan must be those of this cache. What the file says about
  // itself is checked now. Pages are read and checked when a step, Attend, ReadRows or ageing first
  // needs them, layer by layer; one whose bytes are damaged fails that call with kDataLoss, naming
  // file, layer and positions. Until then the file is mapped: replace it by renaming, as Save does.
  virtual Result<std::vector<SequenceTokens>> Load(const std::string& path,
                                                   const LoadOptions& options) = 0;
};

// Bytes per token and layer that a rung takes for one part, scales included: what `varve plan`
// shows before anything runs. Fails on an unknown rung or a dimension that it cannot store. No rung
// of today makes a difference between the parts.
Result<double> RungBytesPerRow(const std::string& rung, Part part, int dim, int page_tokens);

}  // namespace varve

#endif  // VARVE_CACHE_H_
