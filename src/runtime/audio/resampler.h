// Resampler: a stream of mono samples at another rate, by soxr.
//
// soxr and not libsamplerate: a linear-phase filter with 20 bits of precision and a pass band up to
// 0.91 of the lower Nyquist frequency, several times faster than libsamplerate's filter of the same
// quality, and it takes any pair of rates.
//
// Not for several threads at once. The same samples give the same result in any division into
// calls.

#ifndef VARVE_RUNTIME_AUDIO_RESAMPLER_H_
#define VARVE_RUNTIME_AUDIO_RESAMPLER_H_

#include <memory>
#include <span>
#include <vector>

#include "varve/status.h"

struct soxr;

namespace varve {

class Resampler {
 public:
  static Result<Resampler> Create(int input_rate, int output_rate);

  // Appends what these samples allow; the filter's length stays behind.
  Status Add(std::span<const float> samples, std::vector<float>& out);
  // Appends the rest. Nothing may be added afterwards.
  Status Finish(std::vector<float>& out);

 private:
  struct Closer {
    void operator()(soxr* handle) const;
  };
  explicit Resampler(soxr* handle) : handle_(handle) {}

  // soxr's own pace: `samples` null ends the stream.
  Status Drain(const float* samples, size_t count, std::vector<float>& out);

  std::unique_ptr<soxr, Closer> handle_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_RESAMPLER_H_
