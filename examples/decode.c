// The decode loop of decode.cc in C: a prompt goes in, tokens follow one at a time, and the memory
// is compared with f16. Usage: decode_c [PLAN]

#include <stdio.h>
#include <stdlib.h>

#include "varve/varve.h"

enum { kLayers = 4, kKvHeads = 2, kGroup = 4, kDim = 128, kMaxStep = 128 };
enum { kPromptTokens = 4000, kNewTokens = 200 };

static float keys[kMaxStep * kKvHeads * kDim];
static float values[kMaxStep * kKvHeads * kDim];
static float queries[kMaxStep * kKvHeads * kGroup * kDim];
static float output[kMaxStep * kKvHeads * kGroup * kDim];

static void Check(varve_status status, const char* what) {
  if (status == VARVE_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, varve_status_name(status), varve_last_error());
  exit(1);
}

// Noise in [-1, 1); a model would hand over its own rows, after RoPE.
static void MakeRows(float* rows, size_t count) {
  static uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    rows[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
  }
}

// One step of num_tokens tokens through all layers.
static void Step(varve_cache* cache, uint64_t sequence, int32_t num_tokens) {
  const varve_step_entry entry = {sequence, num_tokens};
  const varve_rows key_rows = {.data = keys, .num_tokens = num_tokens};
  const varve_rows value_rows = {.data = values, .num_tokens = num_tokens};
  const varve_attend_request request = {
      .sequence = sequence, .num_queries = num_tokens, .queries = queries, .output = output};
  Check(varve_step_begin(cache, &entry, 1), "begin");
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    MakeRows(keys, (size_t)num_tokens * kKvHeads * kDim);
    MakeRows(values, (size_t)num_tokens * kKvHeads * kDim);
    MakeRows(queries, (size_t)num_tokens * kKvHeads * kGroup * kDim);
    Check(varve_step_append(cache, layer, sequence, &key_rows, &value_rows), "append");
    Check(varve_attend(cache, layer, &request, 1, NULL), "attend");
  }
  Check(varve_step_end(cache), "end");
}

int main(int argc, char** argv) {
  const char* plan = argc > 1 ? argv[1] : "k=q8_0,v=q4_0r";
  const varve_shape shape = {.struct_size = sizeof(shape),
                             .num_layers = kLayers,
                             .num_kv_heads = kKvHeads,
                             .group_size = kGroup,
                             .key_dim = kDim};
  varve_cache* cache = NULL;
  uint64_t sequence = 0;
  Check(varve_cache_create(&shape, plan, NULL, &cache), "create");
  Check(varve_sequence_create(cache, &sequence), "sequence");

  for (int32_t fed = 0; fed < kPromptTokens;) {  // a step ends where a page may change its rung
    int32_t num_tokens = 0;
    Check(varve_sequence_max_step_tokens(cache, sequence, &num_tokens), "max step tokens");
    if (num_tokens > kPromptTokens - fed) num_tokens = kPromptTokens - fed;
    Step(cache, sequence, num_tokens);
    fed += num_tokens;
  }
  Check(varve_sequence_end_prompt(cache, sequence), "end prompt");
  for (int i = 0; i < kNewTokens; ++i) Step(cache, sequence, 1);

  varve_stats stats = {.struct_size = sizeof(stats)};
  Check(varve_get_stats(cache, &stats), "stats");
  const double bytes = (double)(stats.bytes_held + stats.bytes_tables);
  printf("plan %s: %.1f MiB for %d tokens; f16 / this = %.2f\n", plan, bytes / (1 << 20),
         kPromptTokens + kNewTokens, (double)stats.bytes_f16 / bytes);
  varve_cache_destroy(cache);
  return 0;
}
