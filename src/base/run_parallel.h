// ParallelFor for tasks that may throw: the first exception is thrown again on the calling thread,
// once all tasks are done. Executors themselves must not see one.

#ifndef VARVE_BASE_RUN_PARALLEL_H_
#define VARVE_BASE_RUN_PARALLEL_H_

#include <atomic>
#include <cstddef>
#include <exception>

#include "varve/executor.h"

namespace varve {

// Tasks that have not begun when one throws are left out.
template <class Task>
void RunParallel(Executor& executor, size_t count, const Task& task) {
  struct Work {
    const Task& task;
    std::atomic<bool> failed = false;
    std::exception_ptr first = nullptr;  // written by whoever set `failed`

    void Run(size_t index, int worker) noexcept {
      if (failed.load(std::memory_order_relaxed)) return;
      try {
        task(index, worker);
      } catch (...) {
        if (!failed.exchange(true)) first = std::current_exception();
      }
    }
  } work{task};
  // One pointer: a function of it needs no memory.
  executor.ParallelFor(count, [&work](size_t index, int worker) { work.Run(index, worker); });
  if (work.failed) std::rethrow_exception(work.first);
}

}  // namespace varve

#endif  // VARVE_BASE_RUN_PARALLEL_H_
