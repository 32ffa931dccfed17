// varve_hooks.h: what a program may hand to a cache beside numbers (varve_cache_options of
// varve.h): observers of attention and of policies, threads, page memory. Types only; include
// varve.h.
//
// Whatever a hook points to must live as long as the cache, and must not call into it.

#ifndef VARVE_VARVE_HOOKS_H_
#define VARVE_VARVE_HOOKS_H_

// NOLINTBEGIN(modernize-use-using,modernize-deprecated-headers)
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
  int64_t first_position;  // of query 0; the others follow
} varve_attention_mass;

// Called once per request of every varve_attend, on the calling thread. The data is valid during
// the call only. Must not call into the same cache.
typedef void (*varve_attention_observer)(const varve_attention_mass* mass, void* user_data);

// What a retention policy (evict=) has done to one page.
typedef enum varve_page_fate {
  VARVE_KEPT = 0,
  VARVE_DEMOTED = 1,
  VARVE_DROPPED = 2
} varve_page_fate;

typedef struct varve_page_decision {
  varve_page_span page;
  double score;      // what the policy ranks by
  int32_t fate;      // varve_page_fate
  const char* rung;  // that the page has now; "" if it was dropped
} varve_page_decision;

// Made by the library.
typedef struct varve_retention_event {
  size_t struct_size;  // set by the library
  uint64_t sequence;
  int32_t layer;
  int32_t floors_bind;  // 1: what must stay exceeds the target
  int64_t next_position;
  uint64_t target_bytes;  // of the layer
  uint64_t held_bytes;    // after
  size_t num_pages;
  const varve_page_decision* pages;  // [num_pages], the table as it was before, ascending
} varve_retention_event;

// Called when a decision is carried out, on the calling thread. Must not call into the same cache.
typedef void (*varve_retention_observer)(const varve_retention_event* event, void* user_data);

// Gets the lines of a plan with log_stats=1, without a newline, on the calling thread.
typedef void (*varve_log_sink)(const char* line, void* user_data);

// The program's own threads: must call task(index, worker, task_data) once for every index in
// [0, count), on as many threads as it likes, and return when all are done. `worker` is in
// [0, parallel_for_threads) and no two calls with the same worker overlap.
typedef void (*varve_task)(size_t index, int32_t worker, void* task_data);
typedef void (*varve_parallel_for)(size_t count, varve_task task, void* task_data, void* user_data);

// The program's own page memory. map gives a multiple of 2 MiB, or null; discard gives the memory
// of a range back, whose content is lost.
typedef struct varve_page_memory {
  void* (*map)(size_t bytes, void* user_data);
  void (*discard)(void* address, size_t bytes, void* user_data);
  void (*unmap)(void* address, size_t bytes, void* user_data);
  void* user_data;
} varve_page_memory;

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(modernize-use-using,modernize-deprecated-headers)

#endif  // VARVE_VARVE_HOOKS_H_
