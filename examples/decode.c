// decode.cc in C: a prompt goes in, tokens follow one at a time. Usage: decode_c [PLAN]

#include <stdio.h>
#include <stdlib.h>

#include "varve/varve.h"

enum { kLayers = 4, kKvHeads = 2, kGroup = 4, kDim = 128, kPromptTokens = 4000 };

static void Check(varve_status status) {
  if (status == VARVE_OK) return;
  fprintf(stderr, "%s: %s\n", varve_status_name(status), varve_last_error());
  exit(1);
}

// One step of n tokens. A model would hand over its own rows, after RoPE; these are noise.
static void Step(varve_cache* cache, uint64_t sequence, int32_t n) {
  const size_t row = kKvHeads * kDim;
  float* rows = malloc((size_t)n * row * (2 + 2 * kGroup) * sizeof(float));
  float *values = rows + (size_t)n * row, *queries = values + (size_t)n * row;
  for (size_t i = 0; i < (size_t)n * row * (2 + kGroup); ++i) rows[i] = (float)(rand() % 201 - 100);
  const varve_step_entry entry = {sequence, n};
  const varve_rows k = {.data = rows, .num_tokens = n}, v = {.data = values, .num_tokens = n};
  const varve_attend_request request = {.sequence = sequence,
                                        .num_queries = n,
                                        .queries = queries,
                                        .output = queries + (size_t)n * row * kGroup};
  Check(varve_step_begin(cache, &entry, 1));
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    Check(varve_step_append(cache, layer, sequence, &k, &v));
    Check(varve_attend(cache, layer, &request, 1, NULL));
  }
  Check(varve_step_end(cache));
  free(rows);
}

int main(int argc, char** argv) {
  const varve_shape shape = {.struct_size = sizeof(shape),
                             .num_layers = kLayers,
                             .num_kv_heads = kKvHeads,
                             .group_size = kGroup,
                             .key_dim = kDim};
  varve_cache* cache = NULL;
  uint64_t sequence = 0;
  Check(varve_cache_create(&shape, argc > 1 ? argv[1] : "k=q8_0,v=q4_0r", NULL, &cache));
  Check(varve_sequence_create(cache, &sequence));
  for (int32_t fed = 0, n = 0; fed < kPromptTokens; fed += n) {
    Check(varve_sequence_max_step_tokens(cache, sequence, &n));
    if (n > kPromptTokens - fed) n = kPromptTokens - fed;
    Step(cache, sequence, n);
  }
  Check(varve_sequence_end_prompt(cache, sequence));
  for (int i = 0; i < 200; ++i) Step(cache, sequence, 1);

  double resident = 0;
  Check(varve_property_number(cache, "resident_bytes", &resident));
  printf("%.1f MiB for %d tokens\n", resident / (1 << 20), kPromptTokens + 200);
  varve_cache_destroy(cache);
  return 0;
}
