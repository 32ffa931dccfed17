// A program that was compiled with the first header (varve_0_1.h, never changed) and runs with the
// library of today: smaller structs are accepted, what they do not have counts as zero, and nothing
// is written beyond them.

#include <stdio.h>
#include <string.h>

#include "varve_0_1.h"

static int failures = 0;

static void Expect(int holds, const char* promise) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "not true: %s (%s)\n", promise, varve_last_error());
}

static int observed = 0;

static void Observe(const varve_attention_mass* mass, void* user_data) {
  Expect(mass->struct_size >= sizeof(*mass), "a struct of the library has all old fields");
  Expect(mass->num_pages == 1 && mass->num_queries == 1, "old fields are where they were");
  Expect(user_data == &observed, "user_data is passed on");
  ++observed;
}

int main(void) {
  enum { kDim = 32 };
  static float rows[kDim], output[kDim];
  for (int i = 0; i < kDim; ++i) rows[i] = (float)i / kDim;
  const varve_shape shape = {
      .struct_size = sizeof(shape), .num_layers = 1, .num_kv_heads = 1, .key_dim = kDim};
  const varve_cache_options options = {.struct_size = sizeof(options),
                                       .max_bytes = 1 << 20,
                                       .num_threads = 1,
                                       .observer = Observe,
                                       .user_data = &observed};
  varve_cache* cache = NULL;
  uint64_t sequence = 0;
  Expect(varve_cache_create(&shape, "q8_0", &options, &cache) == VARVE_OK, "create");
  Expect(varve_sequence_create(cache, &sequence) == VARVE_OK, "sequence");

  const varve_step_entry entry = {sequence, 1};
  const varve_rows row = {.data = rows, .num_tokens = 1};
  const varve_attend_request request = {
      .sequence = sequence, .num_queries = 1, .queries = rows, .output = output};
  const varve_attend_options attend = {.struct_size = sizeof(attend), .scale = 1.0f};
  Expect(varve_step_begin(cache, &entry, 1) == VARVE_OK, "begin");
  Expect(varve_step_append(cache, 0, sequence, &row, &row) == VARVE_OK, "append");
  Expect(varve_attend(cache, 0, &request, 1, &attend) == VARVE_OK, "attend");
  Expect(varve_step_end(cache) == VARVE_OK, "end");
  Expect(observed == 1, "the observer is called");

  struct {
    varve_stats stats;
    unsigned char behind[64];
  } guarded;
  memset(&guarded, 0xA5, sizeof(guarded));
  guarded.stats.struct_size = sizeof(guarded.stats);
  Expect(varve_get_stats(cache, &guarded.stats) == VARVE_OK, "stats");
  Expect(guarded.stats.sequences == 1 && guarded.stats.pages == 1, "old figures are there");
  for (size_t i = 0; i < sizeof(guarded.behind); ++i) {
    Expect(guarded.behind[i] == 0xA5, "nothing is written behind an old struct");
  }
  // Smaller than any version is not a struct of ours.
  varve_cache_options small = options;
  small.struct_size = 8;
  varve_cache* none = NULL;
  Expect(varve_cache_create(&shape, "q8_0", &small, &none) == VARVE_INVALID_ARGUMENT, "too small");
  varve_cache_destroy(cache);
  return failures;
}
