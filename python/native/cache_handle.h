// CacheHandle: a cache, the Python functions that it calls, and the lock that lets one thread at a
// time use it. Work runs without the GIL. On a GPU it goes on in the stream of whoever's tensors
// come.

#ifndef VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_
#define VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include <pybind11/pybind11.h>

#include "errors.h"
#include "observers.h"
#include "tensor.h"
#include "varve/cache.h"

namespace varve::python {

class CacheHandle {
 public:
  CacheHandle(const CacheShape& shape, CacheOptions options, const Place& place,
              std::unique_ptr<Observers> observers)
      : observers_(std::move(observers)), place_(place) {
    observers_->Attach(options);
    options.device = place.device;
    options.device_index = place.index;
    options.stream = reinterpret_cast<void*>(place.stream);
    cache_ = Take(Cache::Create(shape, std::move(options)));
  }

  // Tensors that one call is about to use. Those of a GPU may name a stream: work goes on there.
  Tensor Read(const pybind11::handle& object, const char* what) {
    return Follow(Tensor::Read(object, what, place_));
  }
  Tensor Write(const pybind11::handle& object, const char* what) {
    return Follow(Tensor::Write(object, what, place_));
  }
  const Place& place() const { return place_; }

  // Gives what work(cache) gives: a Status, Result or other value. Other threads wait their turn; a
  // function that the cache has called is refused, since it would wait for itself.
  template <typename Work>
  std::invoke_result_t<Work, Cache&> Run(Work work) {
    if (user_.load() == std::this_thread::get_id()) {
      throw StatusError(
          FailedPrecondition("an observer must not call into the cache that called it"));
    }
    auto result = [&] {
      const pybind11::gil_scoped_release no_gil;
      const std::lock_guard lock(mutex_);
      user_.store(std::this_thread::get_id());
      auto outcome = work(*cache_);
      user_.store(std::thread::id());
      return outcome;
    }();
    observers_->Rethrow();
    return result;
  }
  // The same, raising what is no success.
  template <typename Work>
  auto RunAndTake(Work work) {
    if constexpr (std::is_same_v<std::invoke_result_t<Work, Cache&>, Status>) {
      Check(Run(std::move(work)));
    } else {
      return Take(Run(std::move(work)));
    }
  }

  // For what never changes.
  const CacheShape& shape() const { return cache_->shape(); }
  const Plan& plan() const { return cache_->plan(); }

 private:
  Tensor Follow(Tensor tensor) {
    if (tensor.stream() && *tensor.stream() != place_.stream) {
      const uintptr_t stream = *tensor.stream();
      RunAndTake([&](Cache& cache) { return cache.SetStream(reinterpret_cast<void*>(stream)); });
      place_.stream = stream;
    }
    return tensor;
  }

  std::unique_ptr<Observers> observers_;  // outlives the cache
  Place place_;
  std::unique_ptr<Cache> cache_;
  std::mutex mutex_;
  std::atomic<std::thread::id> user_;
};

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_
