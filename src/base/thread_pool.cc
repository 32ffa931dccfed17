#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "varve/executor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace varve {
namespace {

// How long workers spin before they sleep, about 50 us: long enough for the gap between two layers
// of a decode step, short enough not to waste a core while the program pauses.
constexpr int kSpinRounds = 2000;

constexpr int kMaxThreads = 1024;

inline void CpuPause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Workers sleep on `generation_`. A ParallelFor publishes task and count, bumps the generation and
// takes part itself; indices are handed out by an atomic counter. The caller leaves once every
// worker of the generation has checked out, so the task may live on the caller's stack.
class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int num_threads) {
    threads_.reserve(num_threads - 1);
    try {
      for (int worker = 1; worker < num_threads; ++worker) {
        threads_.emplace_back([this, worker] { WorkerLoop(worker); });
      }
    } catch (const std::system_error&) {
      // The system gives no more threads: work with those that there are.
    }
  }

  ~ThreadPool() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int num_threads() const override { return static_cast<int>(threads_.size()) + 1; }

  void ParallelFor(size_t count, const std::function<void(size_t, int)>& task) override {
    if (threads_.empty() || count <= 1) {
      for (size_t i = 0; i < count; ++i) task(i, 0);
      return;
    }
    task_ = &task;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    {
      // Under the mutex, so that a worker between its check and its sleep cannot miss the bump.
      std::lock_guard<std::mutex> lock(mutex_);
      generation_.fetch_add(1, std::memory_order_release);
    }
    if (sleepers_.load(std::memory_order_acquire) > 0) wake_.notify_all();
    Drain(0);
    for (int round = 0; running_.load(std::memory_order_acquire) > 0; ++round) {
      if (round < kSpinRounds) {
        CpuPause();
      } else {
        std::this_thread::yield();  // more threads than cores: let them finish
      }
    }
  }

 private:
  void Drain(int worker) {
    for (;;) {
      const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      (*task_)(index, worker);
    }
  }

  void WorkerLoop(int worker) {
    uint64_t seen = 0;
    for (;;) {
      AwaitGenerationAfter(seen);
      ++seen;
      if (stop_.load(std::memory_order_acquire)) return;
      Drain(worker);
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  void AwaitGenerationAfter(uint64_t seen) {
    for (int i = 0; i < kSpinRounds; ++i) {
      if (generation_.load(std::memory_order_acquire) != seen) return;
      CpuPause();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_release);
    wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
    sleepers_.fetch_sub(1, std::memory_order_release);
  }

  std::vector<std::thread> threads_;  // workers 1…; the caller is worker 0

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};

  // Written before the generation is bumped, read after it was seen.
  const std::function<void(size_t, int)>* task_ = nullptr;
  size_t count_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<int> running_{0};
};

}  // namespace

std::unique_ptr<Executor> MakeThreadPool(int num_threads) {
  if (num_threads <= 0) num_threads = static_cast<int>(std::thread::hardware_concurrency());
  num_threads = std::clamp(num_threads, 1, kMaxThreads);
  return std::make_unique<ThreadPool>(num_threads);
}

}  // namespace varve
