// A decode loop on a compressed cache: a prompt goes in, tokens follow one at a time, and the
// memory is compared with f16. Usage: decode_cc [PLAN]

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "varve/cache.h"

namespace {

constexpr int kPromptTokens = 4000;
constexpr int kNewTokens = 200;
constexpr varve::CacheShape kShape{
    .num_layers = 4, .num_kv_heads = 2, .group_size = 4, .key_dim = 128, .value_dim = 128};
constexpr int kRowFloats = kShape.num_kv_heads * kShape.key_dim;  // of all KV heads of a token

// One step of `num_tokens` tokens through all layers. Rows are noise; a model would hand over its
// own, after RoPE.
varve::Status Step(varve::Cache& cache, varve::SequenceId sequence, int num_tokens) {
  static std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> key_rows(num_tokens * kRowFloats), value_rows(key_rows.size());
  std::vector<float> queries(key_rows.size() * kShape.group_size), output(queries.size());
  for (std::vector<float>* rows : {&key_rows, &value_rows, &queries}) {
    std::generate(rows->begin(), rows->end(), [&] { return normal(random); });
  }
  const varve::RowsView keys{key_rows.data(), num_tokens}, values{value_rows.data(), num_tokens};
  const varve::AttendOptions options;
  varve::AttendRequest request;
  request.sequence = sequence;
  request.num_queries = num_tokens;
  request.queries = queries.data();
  request.output = output.data();
  const varve::StepEntry entry{sequence, num_tokens};
  VARVE_RETURN_IF_ERROR(cache.BeginStep({&entry, 1}));
  for (int layer = 0; layer < kShape.num_layers; ++layer) {
    VARVE_RETURN_IF_ERROR(cache.Append(layer, sequence, keys, values));
    VARVE_RETURN_IF_ERROR(cache.Attend(layer, {&request, 1}, options));
  }
  return cache.EndStep();
}

varve::Status Decode(const char* plan_text) {
  varve::Result<varve::Plan> plan = varve::ParsePlan(plan_text);
  if (!plan.ok()) return plan.status();
  varve::CacheOptions options;
  options.plan = *plan;
  varve::Result<std::unique_ptr<varve::Cache>> cache = varve::Cache::Create(kShape, options);
  if (!cache.ok()) return cache.status();
  varve::Result<varve::SequenceId> sequence = (*cache)->CreateSequence();
  if (!sequence.ok()) return sequence.status();

  for (int fed = 0; fed < kPromptTokens;) {  // a step ends where a page may change its rung
    varve::Result<int> most = (*cache)->MaxStepTokens(*sequence);
    if (!most.ok()) return most.status();
    const int num_tokens = std::min(*most, kPromptTokens - fed);
    VARVE_RETURN_IF_ERROR(Step(**cache, *sequence, num_tokens));
    fed += num_tokens;
  }
  VARVE_RETURN_IF_ERROR((*cache)->EndPrompt(*sequence));
  for (int i = 0; i < kNewTokens; ++i) VARVE_RETURN_IF_ERROR(Step(**cache, *sequence, 1));

  const varve::CacheStats stats = (*cache)->Stats();
  const auto bytes = static_cast<double>(stats.bytes_held + stats.bytes_tables);
  std::printf("plan %s: %.1f MiB for %d tokens; f16 / this = %.2f\n", plan_text, bytes / (1 << 20),
              kPromptTokens + kNewTokens, static_cast<double>(stats.bytes_f16) / bytes);
  return varve::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const varve::Status status = Decode(argc > 1 ? argv[1] : "age=f16:256/q8_0:1024/q4_0r");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
