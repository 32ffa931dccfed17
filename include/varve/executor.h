// Executor: the threads that the cache computes on. One pool per process is enough: engines
// inject their own, everybody else gets one from MakeThreadPool.
//
// Results of the cache never depend on the number of threads or on which thread ran what.

#ifndef VARVE_EXECUTOR_H_
#define VARVE_EXECUTOR_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "varve/export.h"

namespace varve {

class VARVE_API Executor {
 public:
  virtual ~Executor() = default;

  // Number of workers, the caller of ParallelFor included; >= 1.
  virtual int num_threads() const = 0;

  // Calls task(index, worker) for every index in [0, count), each once, and returns when all are
  // done. `worker` is in [0, num_threads()) and no two calls with the same worker overlap. Tasks
  // do not throw and do not call ParallelFor. One ParallelFor at a time per executor.
  virtual void ParallelFor(size_t count,
                           const std::function<void(size_t index, int worker)>& task) = 0;
};

// A pool with `num_threads` workers (0: one per core; at most 1024; fewer where the system refuses
// threads: ask num_threads()). Workers wait briefly by spinning, then
// sleep, so that the hundreds of short calls of one decode step do not pay a wake-up each.
VARVE_API std::unique_ptr<Executor> MakeThreadPool(int num_threads);

}  // namespace varve

#endif  // VARVE_EXECUTOR_H_
