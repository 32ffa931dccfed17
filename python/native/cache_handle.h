// CacheHandle: a cache, the Python functions that it calls, and the lock that lets one thread at a
// time use it. Work runs without the GIL. On a GPU it goes on in the stream of whoever's tensors
// come.

#ifndef VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_
#define VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
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
      : observers_(std::move(observers)), place_(place), stream_(place.stream) {
    observers_->Attach(options);
    options.device = place.device;
    options.device_index = place.index;
    options.stream = reinterpret_cast<void*>(place.stream);
    cache_ = Take(Cache::Create(shape, std::move(options)));
  }

  // Tensors that one call is about to use. Those of a GPU may name a stream: work goes on there.
  Tensor Read(const pybind11::handle& object, const char* what) {
    return Follow(Tensor::Read(object, what, PlaceNow()));
  }
  Tensor Write(const pybind11::handle& object, const char* what) {
    return Follow(Tensor::Write(object, what, PlaceNow()));
  }
  std::string place_name() const { return place_.name(); }

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
      const User user(user_);
      return work(*cache_);
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
  // The thread that works, also when the work throws.
  class User {
   public:
    explicit User(std::atomic<std::thread::id>& user) : user_(user) {
      user_.store(std::this_thread::get_id());
    }
    ~User() { user_.store(std::thread::id()); }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    std::atomic<std::thread::id>& user_;
  };

  Place PlaceNow() const {
    Place place = place_;
    place.stream = stream_.load();
    return place;
  }

  Tensor Follow(Tensor tensor) {
    if (tensor.stream() && *tensor.stream() != stream_.load()) {
      const uintptr_t stream = *tensor.stream();
      // Noted under the lock, so that it is the cache's whichever thread comes first.
      RunAndTake([&](Cache& cache) {
        Status status = cache.SetStream(reinterpret_cast<void*>(stream));
        if (status.ok()) stream_.store(stream);
        return status;
      });
    }
    return tensor;
  }

  std::unique_ptr<Observers> observers_;  // outlives the cache
  const Place place_;                     // as the cache was made
  std::atomic<uintptr_t> stream_;         // that the cache works on now
  std::unique_ptr<Cache> cache_;
  std::mutex mutex_;
  std::atomic<std::thread::id> user_;
};

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_
