// A prompt goes in, tokens follow one at a time; memory beside that of f16. Usage: decode_cc [PLAN]

#include <cstdio>
#include <random>
#include <vector>

#include "varve/step.h"

namespace {

constexpr varve::CacheShape kShape{
    .num_layers = 4, .num_kv_heads = 2, .group_size = 4, .key_dim = 128, .value_dim = 128};

// One layer of `count` tokens. A model computes these rows, keys and queries after RoPE.
varve::Status RunLayer(varve::Step& step, int layer, varve::SequenceId sequence, int count) {
  static std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> keys(static_cast<size_t>(count * 2 * 128)), values(keys.size());
  std::vector<float> queries(keys.size() * 4), output(queries.size());
  for (auto* rows : {&keys, &values, &queries})
    for (float& value : *rows) value = normal(random);
  VARVE_RETURN_IF_ERROR(step.Append(layer, sequence, {keys.data(), count}, {values.data(), count}));
  varve::AttendRequest request{
      .sequence = sequence, .num_queries = count, .queries = queries.data()};
  request.output = output.data();
  return step.Attend(layer, {&request, 1});
}

varve::Status Decode(const char* plan) {
  varve::CacheOptions options;
  VARVE_ASSIGN_OR_RETURN(options.plan, varve::ParsePlan(plan));
  VARVE_ASSIGN_OR_RETURN(const auto cache, varve::Cache::Create(kShape, options));
  VARVE_ASSIGN_OR_RETURN(const varve::SequenceId sequence, cache->CreateSequence());
  const auto layers = [&](varve::Step& step, int64_t /*first*/, int count) -> varve::Status {
    for (int layer = 0; layer < kShape.num_layers; ++layer) {
      VARVE_RETURN_IF_ERROR(RunLayer(step, layer, sequence, count));
    }
    return varve::Status();
  };
  VARVE_RETURN_IF_ERROR(varve::Prefill(*cache, sequence, 4000, layers));  // the prompt
  VARVE_RETURN_IF_ERROR(cache->EndPrompt(sequence));
  for (int i = 0; i < 200; ++i) {  // and what follows
    VARVE_ASSIGN_OR_RETURN(varve::Step step, varve::Step::Begin(*cache, sequence));
    VARVE_RETURN_IF_ERROR(layers(step, 0, 1));
    VARVE_RETURN_IF_ERROR(step.Commit());
  }
  const varve::CacheStats stats = cache->Stats();
  std::printf("plan %s: %.1f MiB for 4200 tokens; plain f16: %.1f MiB\n", plan,
              static_cast<double>(stats.bytes_held + stats.bytes_tables) / (1 << 20),
              static_cast<double>(stats.bytes_f16) / (1 << 20));
  return varve::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const varve::Status status = Decode(argc > 1 ? argv[1] : "age=f16:256/q8_0:1024/q4_0r");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
