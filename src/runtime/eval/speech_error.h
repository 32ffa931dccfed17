// What a plan does to the rows of a speech model and to attention on them, apart from what later
// layers make of it: the rows and queries of an exact run go into the caches of the plan, and come
// back from there.

#ifndef VARVE_RUNTIME_EVAL_SPEECH_ERROR_H_
#define VARVE_RUNTIME_EVAL_SPEECH_ERROR_H_

#include <cstdint>
#include <span>

#include "runtime/whisper/speech_runner.h"
#include "varve/status.h"

namespace varve {

// Differences from the exact values.
struct ErrorSum {
  double max = 0;
  double squares = 0;
  uint64_t count = 0;

  void Add(const float* values, const float* exact, size_t size);
  double rms() const;
};

struct SpeechErrors {
  ErrorSum k;  // rows of both caches
  ErrorSum v;
  ErrorSum attention;  // outputs over both
};

// Adds the errors of one window to *errors. `exact` has the plan f32; both runners are of one
// model. mel as for SpeechRunner::Encode; `tokens` are fed.
Status MeasureSpeechErrors(SpeechRunner& exact, SpeechRunner& tested, const float* mel,
                           ptrdiff_t stride, std::span<const int32_t> tokens, SpeechErrors* errors);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_SPEECH_ERROR_H_
