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
//   varve_step_end(cache);                                  commits; pages sink as the plan says
//
// Errors. A call returns VARVE_OK or the reason why it did nothing; varve_last_error() then names
// field, value and limit. A call that fails inside a step (append, attend, end) also rolls the
// whole step back and closes it. Out-parameters are written on success only. A pointer that must
// not be null is checked. No exception leaves the library, and nothing in it prints.
//
// Thread-safety: one thread at a time may use a cache, calls that only read included. Different
// caches are independent. Functions without a cache may be called from any thread at any time.
//
// Ownership: the library keeps no pointer that it is given, apart from the callback's user_data.
// Strings returned through `char**` belong to the caller, who gives them to varve_free.
//
// Growth. A struct with a `struct_size` field may get new fields at its end. Set struct_size to
// sizeof the struct and what you do not use to zero; zero is the default everywhere. A library
// that is older than the program's header accepts the larger struct as long as the bytes it does
// not know are zero. A struct that the library makes (varve_attention_mass) has struct_size set by
// it: a field beyond that size is not there. Structs without struct_size, and the numbers of enums,
// never change.

#ifndef VARVE_VARVE_H_
#define VARVE_VARVE_H_

// This file is C: typedef and .h headers are its idiom.
// NOLINTBEGIN(modernize-use-using,modernize-deprecated-headers,modernize-redundant-void-arg)
#include <stddef.h>
#include <stdint.h>

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
const char* varve_status_name(int status);

// Message of the last call that failed on this thread, "" if none has. A call that succeeds leaves
// it as it is. Valid until the next failing call of this thread; long messages are cut.
const char* varve_last_error(void);

// Version of the library that is running, "0.1.0". Static.
const char* varve_version(void);

// Frees a string that a call returned; null is allowed.
void varve_free(char* text);

// --- plans: what --kv takes, in text, or in JSON where the first character that is no blank is
// '{'. See docs/plans.md ---

// Parses a plan and gives its canonical text, "" for the plan that says nothing (f16 everywhere).
// The caller frees it with varve_free.
varve_status varve_plan_canonical(const char* plan, char** canonical);

// VARVE_OK if this build can run the plan; VARVE_UNIMPLEMENTED names the clause that it cannot.
varve_status varve_plan_check(const char* plan);

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

// One page of a sequence's table in one layer.
typedef struct varve_page_span {
  int64_t first_position;  // token span that the page stands for
  int64_t num_positions;
  int32_t num_rows;       // rows stored
  int32_t num_live_rows;  // rows that attention still sees
} varve_page_span;

// What an observer is told. Made by the library.
typedef struct varve_attention_mass {
  size_t struct_size;  // set by the library
  int32_t layer;
  int32_t num_queries;
  int32_t num_heads;  // query heads
  uint64_t sequence;
  size_t num_pages;
  const varve_page_span* pages;  // [num_pages], the table as it was read
  // [num_queries, num_heads, num_pages]: the exact share of the attention mass that each page got.
  // A row sums to 1; it is all zeros for a query that saw nothing.
  const float* mass;
} varve_attention_mass;

// Called once per request of every varve_attend, on the calling thread, before that call returns.
// The data is valid during the call only. Must not call into the same cache.
typedef void (*varve_attention_observer)(const varve_attention_mass* mass, void* user_data);

typedef struct varve_cache_options {
  size_t struct_size;
  uint64_t max_bytes;   // cap on bytes_held; 0: none. A step that would pass it is refused whole
  int32_t num_threads;  // of the cache's own pool; 0: one per core
  int32_t reserved;     // zero
  varve_attention_observer observer;  // may be null
  void* user_data;                    // for the observer; must stay valid as long as the cache
} varve_cache_options;

// Makes a cache. `plan` may be null or "" (f16 everywhere), `options` may be null (defaults).
// On success *cache is owned by the caller, who ends it with varve_cache_destroy.
varve_status varve_cache_create(const varve_shape* shape, const char* plan,
                                const varve_cache_options* options, varve_cache** cache);

// Frees the cache and all its sequences; an open step is lost. Null is allowed.
void varve_cache_destroy(varve_cache* cache);

// The shape in force, with every 0 filled in. The caller sets shape->struct_size.
varve_status varve_cache_shape(const varve_cache* cache, varve_shape* shape);

// --- sequences. Ids are never 0 and never reused. VARVE_NOT_FOUND on a freed id. Calls that
// change a sequence fail with VARVE_FAILED_PRECONDITION while a step is open ---

varve_status varve_sequence_create(varve_cache* cache, uint64_t* sequence);

// A sequence with the same content. Shares every page; the open page is copied by whoever appends
// to it first.
varve_status varve_sequence_fork(varve_cache* cache, uint64_t source, uint64_t* sequence);

varve_status varve_sequence_free(varve_cache* cache, uint64_t sequence);

// Forgets positions >= position.
varve_status varve_sequence_truncate(varve_cache* cache, uint64_t sequence, int64_t position);

// Forgets positions in [begin, end). Other positions keep their numbers.
varve_status varve_sequence_remove_range(varve_cache* cache, uint64_t sequence, int64_t begin,
                                         int64_t end);

// Forgets everything outside [begin, end); the next position does not change.
varve_status varve_sequence_keep_only(varve_cache* cache, uint64_t sequence, int64_t begin,
                                      int64_t end);

// Drops every page that lies wholly before next_position - num_tokens, except pages that touch the
// first sink_tokens positions.
varve_status varve_sequence_slide_window(varve_cache* cache, uint64_t sequence, int64_t num_tokens,
                                         int64_t sink_tokens);

// The position that the next token will get. Does not count an open step.
varve_status varve_sequence_next_position(const varve_cache* cache, uint64_t sequence,
                                          int64_t* position);

// The rows that attention sees in one layer, those of an open step included.
varve_status varve_sequence_live_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                                      int64_t* num_rows);

// How many tokens the next step of this sequence may hold: 1 ... page_tokens. Longer inputs are
// fed in several steps, so that prefill and decode agree bit for bit.
varve_status varve_sequence_max_step_tokens(const varve_cache* cache, uint64_t sequence,
                                            int32_t* num_tokens);

// Tells policies that a sequence's prompt is complete.
varve_status varve_sequence_end_prompt(varve_cache* cache, uint64_t sequence);

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

// Opens a step: reserves memory in all layers for all entries. On failure nothing has changed.
varve_status varve_step_begin(varve_cache* cache, const varve_step_entry* entries,
                              size_t num_entries);

// Appends rows of one layer; several calls may share the step's tokens of a sequence.
varve_status varve_step_append(varve_cache* cache, int32_t layer, uint64_t sequence,
                               const varve_rows* keys, const varve_rows* values);

// Attention of all requests over one layer, in one parallel pass. Inside a step every sequence
// asked for must have all of the step's rows in this layer. `options` may be null (defaults);
// `requests` may be null if there are none.
varve_status varve_attend(varve_cache* cache, int32_t layer, const varve_attend_request* requests,
                          size_t num_requests, const varve_attend_options* options);

// Commits the step. Fails, and rolls back, if a layer lacks rows.
varve_status varve_step_end(varve_cache* cache);

// Rolls the open step back; nothing happens without one.
varve_status varve_step_abort(varve_cache* cache);

// --- content and statistics ---

typedef enum varve_part { VARVE_KEY = 0, VARVE_VALUE = 1 } varve_part;

// Decodes the live rows of positions [begin, end) in one layer and KV head to f32, ascending.
// `part` is VARVE_KEY or VARVE_VALUE. `out` [rows, dim] holds out_floats floats, at least
// (end - begin) * dim. *num_rows says how many rows there were.
varve_status varve_read_rows(const varve_cache* cache, uint64_t sequence, int32_t layer,
                             int32_t kv_head, int part, int64_t begin, int64_t end, float* out,
                             size_t out_floats, int64_t* num_rows);

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
  uint64_t nonfinite_values;  // NaN or out-of-range values that a block rung replaced
  // From here on since files and packing are part of the ABI.
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
  // From here on since prompts can be folded (fold=).
  uint64_t bytes_compressors;  // networks that fold; a constant, in no other count
  uint64_t fold_prompts;       // since creation: sequences whose prompt was folded,
  uint64_t fold_tokens;        // their tokens, summed over layers,
  uint64_t fold_rows;          // and the rows that these have become
} varve_stats;

// Fills *stats as far as stats->struct_size, which the caller sets, reaches.
varve_status varve_get_stats(const varve_cache* cache, varve_stats* stats);

// The same as one line of JSON with the names above, and with "plan" and "rungs": a list of
// {"rung", "state": "filling" | "full" | "sealed" | "packed", "pages", "bytes"}, and "fallbacks":
// where fallback= took the place of a rung, {"first_layer", "last_layer", "part": "k" | "v",
// "asked", "used", "reason"}. Keys may be added, none is renamed. The caller frees it with
// varve_free.
varve_status varve_stats_json(const varve_cache* cache, char** json);

// Waits until every page that has been handed to the packing workers (pack=) is packed. Needed for
// figures that can be repeated only; results never depend on it.
varve_status varve_wait_for_packing(varve_cache* cache);

// --- files (docs/format/cache-file.md); not while a step is open ---

// A sequence with the ids of its tokens, by position; there may be fewer than the sequence has, or
// more: tokens that have not been fed yet.
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

// Writes sequences to a file. The file appears whole or not at all; on an error one that was there
// before is untouched. `options` may be null (defaults).
varve_status varve_cache_save(const varve_cache* cache, const char* path,
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
varve_status varve_cache_load(varve_cache* cache, const char* path, uint64_t model_fingerprint,
                              varve_loaded** loaded);

// Frees what a load returned, not the sequences. Null is allowed.
void varve_loaded_free(varve_loaded* loaded);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using,modernize-deprecated-headers,modernize-redundant-void-arg)

#endif  // VARVE_VARVE_H_
