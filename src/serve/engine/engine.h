// Engine: a BatchEngine with a thread of its own. The threads of clients hand requests over and
// read their answers from channels; nothing else of the engine is touched by them. Thread-safe.

#ifndef VARVE_SERVE_ENGINE_ENGINE_H_
#define VARVE_SERVE_ENGINE_ENGINE_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "serve/engine/batch_engine.h"

namespace varve::serve {

class Engine {
 public:
  // Starts the thread.
  explicit Engine(std::unique_ptr<BatchEngine> batch);
  // Stops at once: whatever is not answered ends with an error.
  ~Engine();

  Status Check(const CompletionRequest& request) const { return batch_->Check(request); }
  int64_t context() const { return batch_->context(); }

  // Answers come through the channel, whatever happens.
  void Submit(CompletionRequest request, const std::shared_ptr<AnswerChannel>& channel);

  // Runs `task` on the engine's thread between two steps and waits for it. False: the engine has
  // ended, and the task was not run.
  bool Run(const std::function<void(BatchEngine&)>& task);
  // What the engine looks like between two steps; once it has ended, what it looked like last.
  EngineSnapshot Snapshot();

  // Takes nothing more, answers what is there for up to `patience`, and ends the rest with an
  // error.
  void Stop(std::chrono::milliseconds patience);

 private:
  using Arrival = std::pair<CompletionRequest, std::shared_ptr<AnswerChannel>>;

  // Somebody waits for it.
  struct Task {
    const std::function<void(BatchEngine&)>* run = nullptr;
    bool is_done = false;
  };

  void Loop();
  // Hands what has come to the batch; waits for it if there is nothing to do. False: the end.
  bool TakeArrivals(bool is_busy);
  void RunTasks();

  std::unique_ptr<BatchEngine> batch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrival> arrivals_;
  std::vector<Task*> tasks_;
  EngineSnapshot last_snapshot_;
  bool is_closed_ = false;  // nothing more is taken
  bool is_busy_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_ENGINE_ENGINE_H_
