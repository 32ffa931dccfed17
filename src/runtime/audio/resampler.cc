#include "runtime/audio/resampler.h"

#include <fmt/format.h>
#include <soxr.h>

#include <cstddef>
#include <utility>

namespace varve {
namespace {

// Samples that one call of soxr may put out.
constexpr size_t kBlockSamples = 16384;

}  // namespace

void Resampler::Closer::operator()(soxr* handle) const { soxr_delete(handle); }

Result<Resampler> Resampler::Create(int input_rate, int output_rate) {
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  soxr_error_t error = nullptr;
  soxr* handle = soxr_create(input_rate, output_rate, 1, &error, &io, &quality, &runtime);
  if (error != nullptr) {
    soxr_delete(handle);
    return InvalidArgument(
        fmt::format("no resampling from {} to {} Hz: {}", input_rate, output_rate, error));
  }
  return Resampler(handle);
}

Status Resampler::Drain(const float* samples, size_t count, std::vector<float>& out) {
  for (;;) {
    const size_t have = out.size();
    out.resize(have + kBlockSamples);
    size_t taken = 0;
    size_t made = 0;
    const soxr_error_t error = soxr_process(handle_.get(), samples, count, &taken,
                                            out.data() + have, kBlockSamples, &made);
    out.resize(have + made);
    if (error != nullptr) return Internal(fmt::format("resampling: {}", error));
    if (samples != nullptr) {
      samples += taken;
      count -= taken;
    }
    if (made < kBlockSamples && count == 0) return Status();
  }
}

Status Resampler::Add(std::span<const float> samples, std::vector<float>& out) {
  return samples.empty() ? Status() : Drain(samples.data(), samples.size(), out);
}

Status Resampler::Finish(std::vector<float>& out) { return Drain(nullptr, 0, out); }

}  // namespace varve
