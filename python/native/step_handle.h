// StepHandle: a step of a cache as a Python object. It holds the cache; what was not committed when
// it goes is rolled back.

#ifndef VARVE_PYTHON_NATIVE_STEP_HANDLE_H_
#define VARVE_PYTHON_NATIVE_STEP_HANDLE_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache_handle.h"
#include "varve/step.h"

namespace varve::python {

class StepHandle {
 public:
  StepHandle(std::shared_ptr<CacheHandle> cache, const std::vector<StepEntry>& entries)
      : cache_(std::move(cache)) {
    try {
      cache_->RunAndTake([&](Cache& held) -> Status {
        VARVE_ASSIGN_OR_RETURN(Step step, Step::Begin(held, entries));
        step_.emplace(std::move(step));
        return Status();
      });
    } catch (...) {  // an observer may have raised behind the beginning
      if (step_.has_value()) Abort();
      throw;
    }
  }
  ~StepHandle() {
    try {
      Abort();
    } catch (const std::exception&) {
      // Another thread is in the way, or an observer calls: the step stays open, and the next one
      // says so.
    }
  }
  StepHandle(const StepHandle&) = delete;
  StepHandle& operator=(const StepHandle&) = delete;

  CacheHandle& cache() const { return *cache_; }
  const CacheShape& shape() const { return cache_->shape(); }
  bool is_open() const { return step_->is_open(); }
  void Commit() {
    cache_->RunAndTake([&](Cache&) { return step_->Commit(); });
  }
  void Abort() {
    if (!step_->is_open()) return;
    cache_->RunAndTake([&](Cache&) {
      step_->Abort();
      return Status();
    });
  }
  // work(step) uses the tensors and gives a Status.
  template <typename Work>
  void RunWith(const CallTensors& tensors, Work work) {
    cache_->RunWith(tensors, [&](Cache&) -> Status { return work(*step_); });
  }

 private:
  std::shared_ptr<CacheHandle> cache_;
  std::optional<Step> step_;
};

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_STEP_HANDLE_H_
