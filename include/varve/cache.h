// Cache: the keys and values of a transformer, in pages that sink to cheaper representations.
//
// A cache holds any number of sequences of one model. Per layer, a sequence is a table of pages;
// a page holds page_tokens consecutive tokens, one strip of K rows and one of V rows per KV head.
// New rows go into an open page in f16 (or f32, bf16); a full page that leaves the open window is
// sealed: encoded once in the rung that the plan names, immutable and shared from then on.
// Attention is computed on the stored bytes, for all query heads of a KV head at once.
//
// Start here: Cache::Create makes a cache, CreateSequence an empty sequence in it. Tokens go in by
// steps; varve/step.h has the short form, which is all that most programs need:
//
//   VARVE_ASSIGN_OR_RETURN(Step step, Step::Begin(*cache, sequence, num_tokens));
//   for each layer:
//     VARVE_RETURN_IF_ERROR(step.Append(layer, sequence, keys, values));  // rows after RoPE
//     VARVE_RETURN_IF_ERROR(step.Attend(layer, {&request, 1}));  // reads every row so far
//   VARVE_RETURN_IF_ERROR(step.Commit());  // seals, demotes and drops pages that are due
//
// Step stands on BeginStep, Append, Attend, EndStep and AbortStep below. A step reserves all its
// memory or changes nothing. An error of Append, Attend or EndStep inside a step rolls the step
// back and closes it: layers never end at different lengths. (A call that has no business inside a
// step, such as a second BeginStep, is refused and leaves the step open.)
//
// What a query sees: each page in the form it would have if tokens had come one at a time. A step
// may hold thousands of tokens and many pages (MaxStepTokens); pages that fall due inside it are
// encoded then, and later queries of the step see the new form. Prefill and decode agree bit for
// bit.
//
// Thread-safety: one thread at a time may use a Cache (const calls included); the cache spreads
// its own work over the executor. Different caches are independent, also where they share a page
// pool.

#ifndef VARVE_CACHE_H_
#define VARVE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/cache_observer.h"
#include "varve/cache_stats.h"
#include "varve/codebook.h"
#include "varve/compressor.h"
#include "varve/executor.h"
#include "varve/export.h"
#include "varve/page_memory.h"
#include "varve/part.h"
#include "varve/plan.h"
#include "varve/sequence_id.h"
#include "varve/status.h"
#include "varve/tensor.h"

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
  int num_threads = 0;             // size of the cache's own pool; 0: one per core
  Executor* executor = nullptr;    // not owned; replaces the own pool
  PageMemory* memory = nullptr;    // not owned; replaces anonymous mappings
  std::shared_ptr<PagePool> pool;  // shared with other caches; has cap and memory of its own, so
                                   // max_bytes and memory must be left at 0 and null
  AttentionObserver* observer = nullptr;            // not owned
  RetentionObserver* retention_observer = nullptr;  // not owned
  LogSink* log = nullptr;                           // not owned; for plans with log_stats=1
  bool time_stages = false;  // fill CacheReport::stages; results do not change
  // Where pages live and attention runs. On a GPU the pages' memory is taken at once, max_bytes of
  // it or, with 0, most of what is free; `memory` and `pool` must be left null. A shape, a rung or
  // a clause without kernels there is refused (kUnimplemented), as is any GPU in a build without
  // CUDA. Results agree with the CPU's to the rounding of f16; files move between both.
  Device device = Device::kCpu;
  int device_index = 0;  // which GPU
  // > 0: a GPU's memory is not taken at once, but in pieces of so many bytes when pages need them,
  // and empty ones are given back. max_bytes is then a cap as on the CPU, and 0 is none.
  uint64_t device_chunk_bytes = 0;
  // A cudaStream_t that all work goes to, in order; null: one of the cache's own. Calls with
  // tensors of the GPU do not wait for it, unless a policy or an observer wants to know the
  // attention mass.
  void* stream = nullptr;
};

// Whether this build of the library can have caches on such a device: on the CPU always, on GPUs if
// it was built with CUDA. Says nothing about the machine; without a GPU Cache::Create fails there
// all the same (kNotFound).
VARVE_API bool HasBackend(Device device);

struct StepEntry {
  SequenceId sequence;
  int num_tokens = 1;
};

// How a page of a sequence is stored.
struct PageForm {
  // "filling", "open" (full, will be sealed), "exact" (will not), "sealed", "packed" or "idle": at
  // rest (Cache::Rest), packed or not.
  const char* state = "";
  std::string k;  // rung names
  std::string v;
};

struct SequenceInfo {
  int64_t next_position = 0;
  int64_t live_rows = 0;  // of the layer asked for
  std::vector<PageSpan> pages;
  std::vector<PageForm> forms;  // of those pages
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

struct ExportOptions {
  // Each page in the last form that its age will bring, whatever its age: fewer bytes, and who
  // imports it sees that form sooner. Where there is no memory to encode a page it goes as it is.
  bool settled = false;
  // Each page in the form of idle=, as Rest would have it; in layers without it, as `settled`.
  bool resting = false;
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

class VARVE_API Cache {
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
  // Puts pages to rest: those that lie in [begin, end) and are full take the form of the plan's
  // idle=, which no age brings, and keep it. For whoever knows that nobody will ask for the
  // sequence soon; that is no end: it may go on and be forked as before, and sees its pages in that
  // form. Pages that exact= keeps stay. A page that several sequences share is encoded once; those
  // for which Rest is not called keep the old form, and its bytes. Packs what is cold, as a step
  // does (pack=); an empty range does that alone, and takes over what has been packed meanwhile.
  // Returns how many pages, in all layers, have taken the form. kFailedPrecondition for a plan
  // without idle=. kOutOfMemory or kDataLoss where a page found no memory for its new form or could
  // not be read: it stays as it is; others may have changed.
  virtual Result<int64_t> Rest(SequenceId sequence, int64_t begin, int64_t end) = 0;
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

  // How many tokens the next step of this sequence may hold, at least 1: up to the next decision of
  // a policy, and under a cap about as many as there is room for now.
  virtual Result<int> MaxStepTokens(SequenceId sequence) const = 0;
  // Reserves memory in all layers for all entries. On failure nothing has changed.
  virtual Status BeginStep(std::span<const StepEntry> entries) = 0;
  // Appends rows of one layer; several calls may share the step's tokens of a sequence.
  virtual Status Append(int layer, SequenceId sequence, const RowsView& keys,
                        const RowsView& values) = 0;
  // The same for rows that are ggml's blocks, for moving llama.cpp's cache in without loss: they
  // come back from ExportBlocks bit for bit. That takes an open rung that holds their values
  // exactly, so a layer whose plan has no open_rung=f32 refuses (kFailedPrecondition), and so is a
  // block that ggml's quantizer never writes (kInvalidArgument names token, head and block). A
  // block whose scale is 0 is zeros, whatever its codes. K and V may have different formats.
  virtual Status ImportBlocks(int layer, SequenceId sequence, const BlockRowsView& keys,
                              const BlockRowsView& values) = 0;
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

  // A cache on a GPU goes on in another stream, a cudaStream_t (cudaStreamLegacy, not null, is the
  // default one), behind what it has given to the one so far. For engines that change theirs; may
  // be called inside a step. The stream must stay until the cache has another or is gone.
  virtual Status SetStream(void* stream) = 0;

  // --- content ---

  // Decodes the live rows of positions [begin, end) in one layer and KV head to f32, ascending;
  // `out` [rows, dim] must have room for end - begin rows. Returns the number of rows.
  virtual Result<int64_t> ReadRows(SequenceId sequence, int layer, int kv_head, Part part,
                                   int64_t begin, int64_t end, float* out) const = 0;

  // The live rows of positions [begin, end) in one layer, all KV heads, as ggml's blocks:
  // out [rows, num_kv_heads, dim / 32] blocks, ascending, with room for end - begin rows. Pages
  // that are stored in that format give their own scales and codes; pages in f32, f16 or bf16 (open
  // ones) are quantized as ggml does it. A page in any other rung is refused by name
  // (kFailedPrecondition). Returns the number of rows.
  virtual Result<int64_t> ExportBlocks(SequenceId sequence, int layer, Part part,
                                       BlockFormat format, int64_t begin, int64_t end,
                                       std::byte* out) const = 0;

  // The dozen figures that most programs want, and everything; by name: varve/properties.h.
  virtual CacheStats Stats() const = 0;
  virtual CacheReport Report() const = 0;

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

  // --- page images: whole pages of one sequence as bytes, for stores that several caches share, in
  // this process or not; not while a step is open. An image is a .varve file of one sequence that
  // begins at `begin`, without room between pages: docs/format/cache-file.md ---

  // The pages of every layer for positions [begin, end), as they are: exact, in any rung, packed.
  // kFailedPrecondition unless every layer has all of these rows in whole pages, and for plans with
  // evict= or fold=, whose pages depend on what came after them. The sequence does not change.
  virtual Result<std::vector<std::byte>> ExportPages(SequenceId sequence, int64_t begin,
                                                     int64_t end,
                                                     const ExportOptions& options = {}) = 0;
  // Appends the pages of an image to a sequence whose next position is where the image begins. They
  // come back bit for bit in the form that they had; those that are older now take the form that
  // is due, as at the end of a step. Everything is checked before anything changes, and nothing
  // stays in the image: kDataLoss (kInvalidArgument if it is no image at all) if it is damaged,
  // kInvalidArgument if its model, shape, plan or codebook is another, kFailedPrecondition if the
  // sequence ends elsewhere or inside a page, kOutOfMemory without room. Which tokens the pages
  // stand for only the caller knows.
  virtual Status ImportPages(SequenceId sequence, std::span<const std::byte> image) = 0;
};

// Bytes per token and layer that a rung takes for one part, scales included: what `varve plan`
// shows before anything runs. Fails on an unknown rung or a dimension that it cannot store. Turned
// rungs (t4, t3, t2) take 2 * dim bytes more for the K of a page: its mean.
VARVE_API Result<double> RungBytesPerRow(const std::string& rung, Part part, int dim,
                                         int page_tokens);

}  // namespace varve

#endif  // VARVE_CACHE_H_
