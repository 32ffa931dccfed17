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
#include <vector>

#include <pybind11/pybind11.h>

#include "errors.h"
#include "observers.h"
#include "tensor.h"
#include "varve/cache.h"

namespace varve::python {

// The tensors of one call. Those of a GPU belong to streams, which the call's work has to follow.
class CallTensors {
 public:
  // `place` is that of the cache, with the stream that it is on now.
  explicit CallTensors(Place place) : place_(place) {}

  Tensor Read(const pybind11::handle& object, const char* what) {
    return Note(Tensor::Read(object, what, place_));
  }
  Tensor Write(const pybind11::handle& object, const char* what) {
    return Note(Tensor::Write(object, what, place_));
  }
  // Those that libraries told, or were asked to wait in, as they came. The last is to be worked on.
  const std::vector<uintptr_t>& streams() const { return streams_; }

 private:
  Tensor Note(Tensor tensor) {
    if (tensor.device() == Device::kCpu) return tensor;
    place_.stream = tensor.stream().value_or(place_.stream);
    if (streams_.empty() || streams_.back() != place_.stream) streams_.push_back(place_.stream);
    return tensor;
  }

  Place place_;
  std::vector<uintptr_t> streams_;
};

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

  CallTensors MakeCallTensors() const {
    Place place = place_;
    place.stream = stream_.load();
    return CallTensors(place);
  }
  std::string place_name() const { return place_.name(); }
  const Observers& observers() const { return *observers_; }
  Observers& observers() { return *observers_; }

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

  // For work that uses tensors and gives a Status. The cache enters their stream under the lock
  // that it works under, since another thread may bring tensors of another stream.
  template <typename Work>
  void RunWith(const CallTensors& tensors, Work work) {
    RunAndTake([&](Cache& cache) -> Status {
      VARVE_RETURN_IF_ERROR(Follow(cache, tensors.streams()));
      return work(cache);
    });
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

  Status Follow(Cache& cache, const std::vector<uintptr_t>& streams) {
    for (const uintptr_t stream : streams) {
      if (stream == stream_.load()) continue;
      VARVE_RETURN_IF_ERROR(cache.SetStream(reinterpret_cast<void*>(stream)));
      stream_.store(stream);
    }
    return Status();
  }

  std::unique_ptr<Observers> observers_;  // outlives the cache
  const Place place_;                     // as the cache was made
  std::atomic<uintptr_t> stream_;         // that the cache works on now; changes under the lock
  std::unique_ptr<Cache> cache_;
  std::mutex mutex_;
  std::atomic<std::thread::id> user_;
};

}  // namespace varve::python

#endif  // VARVE_PYTHON_NATIVE_CACHE_HANDLE_H_
