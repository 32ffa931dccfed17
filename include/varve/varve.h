// varve.h: the C ABI of Varve. The same cache as varve/cache.h, for C11 and for every language
// that can call C. Read the head of cache.h for pages, rungs and plans; this file says what
// differs in C.
//
// One decode step, for any number of sequences:
//
//   varve_step_begin(cache, entries, num_entries);          reserves all memory or changes nothing
//   for each layer:
//     varve_step_append(cache, layer, seq, &keys, &values); rows after RoPE
//     varve_attend(cache, layer, requests, n, NULL);        reads every row appended so far
//   varve_step_end(cache);                                  commits; pages are demoted as the plan
//   says
//
// Errors. A call returns VARVE_OK or the reason why it did nothing; varve_last_error() then names
// field, value and limit. A call that fails inside a step (append, attend, end) also rolls the
// whole step back and closes it. Out-parameters are written on success only. A pointer that must
// not be null is checked. No exception leaves the library, and nothing in it prints.
//
// Thread-safety: one thread at a time may use a cache, calls that only read included. Different
// caches are independent. Functions without a cache may be called from any thread at any time.
//
// Ownership: the library keeps no pointer that it is given but callbacks and their user_data. The
// caller gives strings returned through `char**` to varve_free.
//
// Growth. A struct with a `struct_size` field may get new fields at its end. Set struct_size to
// sizeof the struct and what you do not use to zero; zero is the default everywhere. So a program
// that was compiled with an older header runs with a newer library, which takes the fields that the
// program does not have as zero, and the other way round, as long as the fields that the library
// does not know are zero. A struct that the library makes (varve_attention_mass) has struct_size
// set by it: a field beyond that size is not there. Structs without struct_size, and the numbers of
// enums, never change.

#ifndef VARVE_VARVE_H_
#define VARVE_VARVE_H_

// NOLINTBEGIN(modernize-use-using,modernize-deprecated-headers,modernize-redundant-void-arg)
#include <stddef.h>
#include <stdint.h>

#include "varve/export.h"
#include "varve/varve_hooks.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_VERSION_MAJOR 0
#define VARVE_VERSION_MINOR 1
#define VARVE_VERSION_PATCH 0

// --- status and errors ---

// The numbers of varve::StatusCode.
typedef enum varve_status {
  VARVE_OK = 0,
  VARVE_INVALID_ARGUMENT = 1,     // something that can never work
  VARVE_OUT_OF_MEMORY = 2,        // the cap, or the system, has no room
  VARVE_NOT_FOUND = 3,            // a sequence that does not exist (any more)
  VARVE_FAILED_PRECONDITION = 4,  // right call, wrong moment (no step open, rows missing)
  VARVE_UNIMPLEMENTED = 5,        // the plan's grammar knows it, this build does not do it
  VARVE_DATA_LOSS = 6,            // stored bytes fail their check
  VARVE_IO_ERROR = 7,             // the operating system refused a read or write
  VARVE_INTERNAL = 8              // a bug in Varve
} varve_status;

// Name of a status, for example "out of memory". Never null; static. An int, so that any number
// from outside may be asked for.
VARVE_API const char* varve_status_name(int status);

// Message of the last call that failed on this thread, "" if none has. A call that succeeds leaves
// it as it is. Valid until the next failing call of this thread; long messages are cut.
VARVE_API const char* varve_last_error(void);

// Version of the library that is running, "0.1.0". Static.
VARVE_API const char* varve_version(void);

// Frees a string that a call returned; null is allowed.
VARVE_API void varve_free(char* text);

// --- plans: what --kv takes, in text, or in JSON where the first character that is no blank is
// '{'. See docs/plans.md ---

// The canonical text of a plan, "" for f16 everywhere. The caller frees it with varve_free.
VARVE_API varve_status varve_plan_canonical(const char* plan, char** canonical);

// VARVE_OK if this build can run the plan; VARVE_UNIMPLEMENTED names the clause that it cannot.
VARVE_API varve_status varve_plan_check(const char* plan);

// --- the cache ---

typedef struct varve_cache varve_cache;  // opaque

// The part of a model that the cache must know.
typedef struct varve_shape {
  size_t struct_size;
  int32_t num_layers;    // 1 ... 1024
  int32_t num_kv_heads;  // 1 ... 1024
  int32_t group_size;    // query heads per KV head, 1 ... 64; 0: 1
  int32_t key_dim;       // head_dim of K; a multiple of 16 up to 512; block rungs: of 32
  int32_t value_dim;     // head_dim of V; likewise; 0: key_dim
  int32_t page_tokens;   // 16, 32, 64 or 128; 0: what the plan says (64 unless it says otherwise)
} varve_shape;

// What a cache may be given. Each may be freed as soon as the caches that use it are made: they
// share it. Thread-safe; null is allowed where one is freed.
typedef struct varve_codebook varve_codebook;      // for pq rungs (varve codebook train)
typedef struct varve_compressor varve_compressor;  // for fold=shipped (varve fold convert)
typedef struct varve_page_pool varve_page_pool;    // page memory that several caches share

VARVE_API varve_status varve_codebook_load(const char* path, varve_codebook** codebook);
VARVE_API varve_status varve_codebook_parse(const void* bytes, size_t num_bytes,
                                            varve_codebook** codebook);
VARVE_API void varve_codebook_free(varve_codebook* codebook);
VARVE_API varve_status varve_compressor_load(const char* path, varve_compressor** compressor);
VARVE_API varve_status varve_compressor_parse(const void* bytes, size_t num_bytes,
                                              varve_compressor** compressor);
VARVE_API void varve_compressor_free(varve_compressor* compressor);

// max_bytes caps what all caches of the pool hold together; 0: no cap. The caches may be used on
// different threads.
VARVE_API varve_status varve_page_pool_create(uint64_t max_bytes, varve_page_pool** pool);
VARVE_API varve_status varve_page_pool_bytes_held(const varve_page_pool* pool, uint64_t* bytes);
VARVE_API void varve_page_pool_free(varve_page_pool* pool);

typedef struct varve_cache_options {
  size_t struct_size;
  uint64_t max_bytes;   // cap on bytes_held; 0: none. A step that would pass it is refused whole
  int32_t num_threads;  // of the cache's own pool; 0: one per core
  int32_t reserved;     // zero
  varve_attention_observer observer;  // may be null
  void* user_data;                    // for the observer
  // Not in the first version of this struct:
  const varve_codebook* codebook;      // null: a plan with pq needs codebook=FILE
  const varve_compressor* compressor;  // null: a plan with fold needs fold=FILE
  uint64_t model_fingerprint;       // of the model; a codebook of another is refused; 0: not said
  varve_parallel_for parallel_for;  // replaces the cache's own threads
  void* parallel_for_data;
  int32_t parallel_for_threads;  // 1 ... 1024 with parallel_for
  int32_t time_stages;           // 1: fill the stage_* properties
  varve_retention_observer retention_observer;
  void* retention_data;
  const varve_page_memory* memory;  // replaces anonymous mappings; copied
  varve_page_pool* pool;            // has its own cap: max_bytes must be 0, memory null
  varve_log_sink log;               // for plans with log_stats=1
  void* log_data;
  // Where pages live and attention runs: varve/cache.h has the terms of a GPU.
  int32_t device;        // varve_device
  int32_t device_index;  // which GPU
  void* stream;          // cudaStream_t, or null
} varve_cache_options;

// Makes a cache. `plan` may be null or "" (f16 everywhere), `options` may be null (defaults).
// On success *cache is owned by the caller, who ends it with varve_cache_destroy.
VARVE_API varve_status varve_cache_create(const varve_shape* shape, const char* plan,
                                          const varve_cache_options* options, varve_cache** cache);

// Frees the cache and all its sequences; an open step is lost. Null is allowed.
VARVE_API void varve_cache_destroy(varve_cache* cache);

// The shape in force, with every 0 filled in. The caller sets shape->struct_size.
VARVE_API varve_status varve_cache_shape(const varve_cache* cache, varve_shape* shape);

// --- sequences. Ids are never 0 and never reused. VARVE_NOT_FOUND on a freed id. Calls that
// change a sequence fail with VARVE_FAILED_PRECONDITION while a step is open ---

VARVE_API varve_status varve_sequence_create(varve_cache* cache, uint64_t* sequence);

// A sequence with the same content. Shares every page; who appends to the open one copies it.
VARVE_API varve_status varve_sequence_fork(varve_cache* cache, uint64_t source, uint64_t* sequence);

VARVE_API varve_status varve_sequence_free(varve_cache* cache, uint64_t sequence);

// Forgets positions >= position.
VARVE_API varve_status varve_sequence_truncate(varve_cache* cache, uint64_t sequence,
                                               int64_t position);

// Forgets positions in [begin, end). Other positions keep their numbers.
VARVE_API varve_status varve_sequence_remove_range(varve_cache* cache, uint64_t sequence,
                                                   int64_t begin, int64_t end);

// Forgets everything outside [begin, end); the next position does not change.
VARVE_API varve_status varve_sequence_keep_only(varve_cache* cache, uint64_t sequence,
                                                int64_t begin, int64_t end);

// Drops pages wholly before next_position - num_tokens, except those of the first sink_tokens.
VARVE_API varve_status varve_sequence_slide_window(varve_cache* cache, uint64_t sequence,
                                                   int64_t num_tokens, int64_t sink_tokens);

// Puts pages to rest: those that lie in [begin, end) and are full take the form of the plan's
// idle=, which no age brings. The sequence may go on, and sees them in that form.
// VARVE_FAILED_PRECONDITION for a plan without idle=; VARVE_OUT_OF_MEMORY where a page found no
// memory for its new form: it stays as it is, and the call may be made again.
VARVE_API varve_status varve_sequence_rest(varve_cache* cache, uint64_t sequence, int64_t begin,
                                           int64_t end);

// The position that the next token will get. Does not count an open step.
VARVE_API varve_status varve_sequence_next_position(const varve_cache* cache, uint64_t sequence,
                                                    int64_t* position);

// The rows that attention sees in one layer, those of an open step included.
VARVE_API varve_status varve_sequence_live_rows(const varve_cache* cache, uint64_t sequence,
                                                int32_t layer, int64_t* num_rows);

// How many tokens the next step of this sequence may hold, at least 1: up to the next decision of a
// policy, and under a cap about as many as there is room for now. Longer inputs take several steps.
VARVE_API varve_status varve_sequence_max_step_tokens(const varve_cache* cache, uint64_t sequence,
                                                      int32_t* num_tokens);

// Says that what is appended from here on is a prompt, up to varve_sequence_end_prompt: layers with
// fold= fold it then. A new sequence begins with a prompt.
VARVE_API varve_status varve_sequence_begin_prompt(varve_cache* cache, uint64_t sequence);
// Says that a sequence's prompt is complete: it is folded (fold=), and policies that look at its
// end decide. If folding fails, nothing has changed: call again, or end it without folding.
VARVE_API varve_status varve_sequence_end_prompt(varve_cache* cache, uint64_t sequence);
// The same, but the prompt is not folded. Needs no memory.
VARVE_API varve_status varve_sequence_end_prompt_unfolded(varve_cache* cache, uint64_t sequence);
// Where to cut so that at most the first num_tokens tokens stay: tokens_left of them, by
// varve_sequence_truncate at position. Tokens and positions differ where prompts were folded.
VARVE_API varve_status varve_sequence_find_cut(const varve_cache* cache, uint64_t sequence,
                                               int64_t num_tokens, int64_t* tokens_left,
                                               int64_t* position);

// --- a step ---

typedef struct varve_step_entry {
  uint64_t sequence;
  int32_t num_tokens;  // 1 ... varve_sequence_max_step_tokens
} varve_step_entry;

// f32 rows [num_tokens, num_kv_heads, dim]; strides in floats, 0: dense.
typedef struct varve_rows {
  const float* data;
  int32_t num_tokens;
  ptrdiff_t token_stride;
  ptrdiff_t head_stride;
} varve_rows;

// The queries of one sequence. Inside a step they belong to the last num_queries tokens of the
// sequence's step; outside a step, to its last num_queries positions.
typedef struct varve_attend_request {
  uint64_t sequence;
  int32_t num_queries;
  // [num_queries, num_kv_heads * group_size, key_dim] f32, after RoPE. Query heads h*group_size ...
  // (h+1)*group_size-1 share KV head h. Strides in floats, 0: dense.
  const float* queries;
  ptrdiff_t query_token_stride;
  ptrdiff_t query_head_stride;
  // [num_queries, num_kv_heads * group_size, value_dim] f32. A query that sees no row gives zeros.
  float* output;
  ptrdiff_t output_token_stride;
  ptrdiff_t output_head_stride;
  // May be null. [num_queries, num_kv_heads * group_size] log-sum-exp of the scaled scores.
  float* log_sum_exp;
} varve_attend_request;

typedef struct varve_attend_options {
  size_t struct_size;
  int64_t window;        // > 0: the model's own sliding window, row-exact
  float scale;           // 0: 1 / sqrt(key_dim)
  float soft_cap;        // > 0: scores become cap * tanh(score / cap)
  int32_t see_all_rows;  // 0: causal; 1: every query sees every row (cross attention)
  int32_t reserved;      // zero
} varve_attend_options;

// Numbers of a tensor, and where they are: on the CPU, or on the device of the cache. Another is
// VARVE_UNIMPLEMENTED.
typedef enum varve_dtype { VARVE_F32 = 0, VARVE_F16 = 1, VARVE_BF16 = 2 } varve_dtype;
typedef enum varve_device { VARVE_CPU = 0, VARVE_CUDA = 1 } varve_device;

// [tokens, heads, dim]; strides in values, 0: dense.
typedef struct varve_tensor {
  void* data;      // is written to as an output only
  int32_t dtype;   // varve_dtype
  int32_t device;  // varve_device
  ptrdiff_t token_stride;
  ptrdiff_t head_stride;
} varve_tensor;

// varve_attend_request with tensors of any type.
typedef struct varve_attend_tensors_request {
  uint64_t sequence;
  int32_t num_queries;
  int32_t reserved;      // zero
  varve_tensor queries;  // [num_queries, num_kv_heads * group_size, key_dim]
  varve_tensor output;   // [num_queries, num_kv_heads * group_size, value_dim]; the same device
  float* log_sum_exp;    // may be null
} varve_attend_tensors_request;

// ggml's blocks of 32 values, 34 or 18 bytes each.
typedef enum varve_block_format { VARVE_Q8_0 = 0, VARVE_Q4_0 = 1 } varve_block_format;

// [num_tokens, num_kv_heads, dim / 32] blocks: a row of llama.cpp's K or V tensor is one token.
typedef struct varve_block_rows {
  const void* data;
  int32_t num_tokens;
  int32_t format;          // varve_block_format
  ptrdiff_t token_stride;  // bytes; 0: dense
} varve_block_rows;

// Opens a step: reserves memory in all layers for all entries. On failure nothing has changed.
VARVE_API varve_status varve_step_begin(varve_cache* cache, const varve_step_entry* entries,
                                        size_t num_entries);

// Appends rows of one layer; several calls may share the step's tokens of a sequence.
VARVE_API varve_status varve_step_append(varve_cache* cache, int32_t layer, uint64_t sequence,
                                         const varve_rows* keys, const varve_rows* values);

// Attention of all requests over one layer, in one parallel pass. Inside a step every sequence
// asked for must have all of the step's rows in this layer. `options` may be null (defaults);
// `requests` may be null if there are none.
VARVE_API varve_status varve_attend(varve_cache* cache, int32_t layer,
                                    const varve_attend_request* requests, size_t num_requests,
                                    const varve_attend_options* options);

// The same two for tensors of any type: f16 and bf16 are converted on the way.
VARVE_API varve_status varve_step_append_tensors(varve_cache* cache, int32_t layer,
                                                 uint64_t sequence, int32_t num_tokens,
                                                 const varve_tensor* keys,
                                                 const varve_tensor* values);
VARVE_API varve_status varve_attend_tensors(varve_cache* cache, int32_t layer,
                                            const varve_attend_tensors_request* requests,
                                            size_t num_requests,
                                            const varve_attend_options* options);

// Appends rows that are ggml's blocks, without loss. Refuses a layer whose plan has no
// open_rung=f32 and a block that ggml's quantizer never writes; see Cache::ImportBlocks.
VARVE_API varve_status varve_step_import_blocks(varve_cache* cache, int32_t layer,
                                                uint64_t sequence, const varve_block_rows* keys,
                                                const varve_block_rows* values);

// Commits the step. Fails, and rolls back, if a layer lacks rows.
VARVE_API varve_status varve_step_end(varve_cache* cache);

// Rolls the open step back; nothing happens without one.
VARVE_API varve_status varve_step_abort(varve_cache* cache);

// --- content and statistics ---

typedef enum varve_part { VARVE_KEY = 0, VARVE_VALUE = 1 } varve_part;

// Decodes the live rows of positions [begin, end) in one layer and KV head to f32, ascending.
// `part` is VARVE_KEY or VARVE_VALUE. `out` [rows, dim] holds out_floats floats, at least
// (end - begin) * dim. *num_rows says how many rows there were.
VARVE_API varve_status varve_read_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                                       int32_t kv_head, int part, int64_t begin, int64_t end,
                                       float* out, size_t out_floats, int64_t* num_rows);

// The live rows of positions [begin, end) in one layer, all KV heads, as ggml's blocks: `out` holds
// out_bytes bytes, at least (end - begin) * num_kv_heads * dim / 32 blocks. Pages in that format
// give their own bytes, float pages what ggml would write; a page in another rung is refused by
// name.
VARVE_API varve_status varve_export_blocks(const varve_cache* cache, uint64_t sequence,
                                           int32_t layer, int part, int format, int64_t begin,
                                           int64_t end, void* out, size_t out_bytes,
                                           int64_t* num_rows);

typedef struct varve_stats {
  size_t struct_size;
  uint64_t bytes_used;     // payload of all live pages; a shared page counts once
  uint64_t bytes_held;     // memory that the pool keeps resident for pages
  uint64_t bytes_tables;   // page records and tables
  uint64_t bytes_scratch;  // work buffers of steps and attention
  uint64_t bytes_f16;      // what the live rows of all sequences would take in plain f16
  uint64_t bytes_copied;   // copied on write since creation
  uint64_t pages;
  uint64_t sequences;
  uint64_t pages_sealed;      // encoded since creation: first seal ...
  uint64_t pages_demoted;     // ... and later steps down the ladder
  uint64_t pages_adopted;     // took over the successor that another sequence had encoded
  uint64_t pages_dropped;     // by window= and varve_sequence_slide_window, in all layers
  uint64_t nonfinite_values;  // values that a rung could not hold: see docs/metrics.md
  // Not in the first version of this struct:
  uint64_t bytes_f16_seen;      // what all tokens that the sequences have seen would take in f16
  uint64_t pages_unread;        // of a loaded file, not asked for yet: they are in no other count,
  uint64_t bytes_unread;        // and their payload
  uint64_t bytes_codebooks;     // tables of centroids of pq rungs; a constant, in no other count
  uint64_t packed_pages;        // packed without loss (pack=) at this moment,
  uint64_t packed_raw_bytes;    // their raw
  uint64_t packed_bytes;        // and packed bytes,
  uint64_t dictionary_bytes;    // and the dictionaries that they share
  uint64_t decode_cache_bytes;  // held for packed pages that are restored beside their packed form
  uint64_t pages_spilled;       // of the packed pages, those whose bytes are in the spill file,
  uint64_t bytes_spilled;       // and these; not in bytes_held
  uint64_t packing_fallbacks;   // since creation: pages left raw because packing failed,
  uint64_t restore_failures;    // packed pages that could not be read
  uint64_t bytes_compressors;   // networks that fold; a constant, in no other count
  uint64_t fold_prompts;        // since creation: sequences whose prompt was folded,
  uint64_t fold_tokens;         // their tokens, summed over layers,
  uint64_t fold_rows;           // and the rows that these have become
} varve_stats;

// Fills *stats as far as stats->struct_size, which the caller sets, reaches.
VARVE_API varve_status varve_get_stats(const varve_cache* cache, varve_stats* stats);

// The same as one line of JSON with the names above, "plan", "rungs": a list of {"rung", "state",
// "pages", "bytes"}, and "fallbacks": where fallback= took the place of a rung. Keys may be added,
// none is renamed. The caller frees it with varve_free.
VARVE_API varve_status varve_stats_json(const varve_cache* cache, char** json);

// Everything that a cache knows about itself, by name (docs/plans.md lists the names): a number,
// any property as text, all of them as one line of JSON. The caller frees text with varve_free.
// VARVE_NOT_FOUND: no such name. VARVE_INVALID_ARGUMENT: the number of a text.
VARVE_API varve_status varve_property_number(const varve_cache* cache, const char* name,
                                             double* number);
VARVE_API varve_status varve_property_text(const varve_cache* cache, const char* name, char** text);
VARVE_API varve_status varve_properties_json(const varve_cache* cache, char** json);

// Waits until the packing workers (pack=) are done. Only figures depend on it, never results.
VARVE_API varve_status varve_wait_for_packing(varve_cache* cache);

// --- files (docs/format/cache-file.md); not while a step is open ---

// A sequence with the ids of its tokens, by position; there may be fewer or more than were fed.
typedef struct varve_saved_sequence {
  uint64_t sequence;
  const int32_t* tokens;  // [num_tokens]; may be null if there are none
  size_t num_tokens;
} varve_saved_sequence;

typedef struct varve_save_options {
  size_t struct_size;
  // What to save, in this order. Null: every sequence, ascending, without token ids.
  const varve_saved_sequence* sequences;
  size_t num_sequences;
  uint64_t model_fingerprint;  // whatever tells models apart; 0: not said
  const char* model_name;      // for people, at most 1024 bytes; may be null
} varve_save_options;

// Writes sequences to a file, which appears whole or not at all. `options` may be null (defaults).
VARVE_API varve_status varve_cache_save(const varve_cache* cache, const char* path,
                                        const varve_save_options* options);

// What a load has added. Made by the library.
typedef struct varve_loaded {
  size_t struct_size;  // set by the library
  size_t num_sequences;
  const varve_saved_sequence* sequences;  // [num_sequences] under their new ids, in file order
} varve_loaded;

// Adds the file's sequences to this cache, all or none. Shape and plan must be those of the cache;
// a model_fingerprint other than 0 must be the file's. Pages are read and checked when they are
// first needed; until then the file is mapped: replace it by renaming, as varve_cache_save does.
// On success *loaded is the caller's, who ends it with varve_loaded_free.
VARVE_API varve_status varve_cache_load(varve_cache* cache, const char* path,
                                        uint64_t model_fingerprint, varve_loaded** loaded);

// Frees what a load returned, not the sequences. Null is allowed.
VARVE_API void varve_loaded_free(varve_loaded* loaded);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using,modernize-deprecated-headers,modernize-redundant-void-arg)

#endif  // VARVE_VARVE_H_
