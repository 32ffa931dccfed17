#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/kernels/weights.h"
#include "runtime/llama/config_reader.h"

namespace varve {
namespace {

Status ReadYarn(const ConfigReader& read, const LlamaConfig& config, RopeConfig* rope) {
  rope->scaling = RopeScaling::kYarn;
  rope->original_context = config.context;
  VARVE_RETURN_IF_ERROR(read.OptionalInt("rope.scaling.original_context_length", 1, kMaxContext,
                                         &rope->original_context));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.scaling.yarn_beta_fast", 1e-6, 1e9, &rope->yarn_beta_fast));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.scaling.yarn_beta_slow", 1e-6, 1e9, &rope->yarn_beta_slow));
  VARVE_RETURN_IF_ERROR(read.OnlyFloat("rope.scaling.yarn_ext_factor", 1.0));
  VARVE_RETURN_IF_ERROR(read.OnlyFloat("rope.scaling.yarn_log_multiplier", 0.0));
  double given = 1.0;
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.scaling.yarn_attn_factor", 1e-3, 1e3, &given));
  rope->attention_factor *= given;
  if (rope->factor > 1.0) rope->attention_factor *= 0.1 * std::log(rope->factor) + 1.0;
  return {};
}

// rope_freqs.weight: what each frequency is divided by, made by the converter from the published
// Llama-3 rule.
Status ReadDivisors(const GgufFile& file, RopeConfig* rope) {
  constexpr std::string_view kName = "rope_freqs.weight";
  const GgufTensor* tensor = file.FindTensor(kName);
  if (tensor == nullptr) return {};
  const int64_t count = rope->dims / 2;
  VARVE_ASSIGN_OR_RETURN(const WeightMatrix stored, file.GetMatrix(kName, 1, count));
  if (stored.type != WeightType::kF32) {
    return InvalidArgument(
        fmt::format("tensor {}: type {}, expected F32", kName, InfoOf(stored.type).name));
  }
  rope->scaling = RopeScaling::kLlama3;
  rope->frequency_divisors.resize(count);
  ActiveWeightKernels().decode[static_cast<int>(WeightType::kF32)](stored.data, count,
                                                                   rope->frequency_divisors.data());
  for (int64_t i = 0; i < count; ++i) {
    const float divisor = rope->frequency_divisors[i];
    if (!(divisor > 0.0f) || !std::isfinite(divisor)) {
      return InvalidArgument(
          fmt::format("tensor {}[{}] {}: must be finite and > 0", kName, i, divisor));
    }
  }
  return {};
}

}  // namespace

Status ReadRope(const ConfigReader& read, LlamaConfig* config) {
  const GgufFile& file = read.file();
  RopeConfig& rope = config->rope;
  rope.dims = config->head_dim;
  VARVE_RETURN_IF_ERROR(read.OptionalInt("rope.dimension_count", 2, config->head_dim, &rope.dims));
  if (rope.dims % 2 != 0) {
    return InvalidArgument(
        fmt::format("{} {} must be even", read.Key("rope.dimension_count"), rope.dims));
  }
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.freq_base", kMinRopeBase, kMaxRopeBase, &rope.base));
  VARVE_RETURN_IF_ERROR(
      read.OptionalFloat("rope.scaling.attn_factor", 1e-3, 1e3, &rope.attention_factor));
  const Result<std::string_view> type =
      file.GetStringOr(read.Key("rope.scaling.type"), "linear");  // as the format's readers do
  if (!type.ok()) return type.status();
  if (*type == "none") return ReadDivisors(file, &rope);
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.scale_linear", 1e-3, 1e6, &rope.factor));
  VARVE_RETURN_IF_ERROR(read.OptionalFloat("rope.scaling.factor", 1e-3, 1e6, &rope.factor));
  if (*type == "yarn") {
    VARVE_RETURN_IF_ERROR(ReadYarn(read, *config, &rope));
  } else if (*type == "linear") {
    if (rope.factor != 1.0) rope.scaling = RopeScaling::kLinear;
  } else {
    return Unimplemented(fmt::format("{} {} is not built in; these are: none, linear, yarn",
                                     read.Key("rope.scaling.type"), Quoted(*type)));
  }
  if (rope.scaling != RopeScaling::kNone && file.FindTensor("rope_freqs.weight") != nullptr) {
    return Unimplemented(fmt::format("{} \"{}\" together with rope_freqs.weight is not built in",
                                     read.Key("rope.scaling.type"), *type));
  }
  return ReadDivisors(file, &rope);
}

}  // namespace varve
