// C function pointers behind the interfaces that a cache calls: observers, executor, page memory.
// Each forwards and nothing else; user_data is the caller's. Thread-safety is that of the callback.

#ifndef VARVE_C_API_C_API_CALLBACKS_H_
#define VARVE_C_API_C_API_CALLBACKS_H_

#include <string>
#include <string_view>
#include <vector>

#include "varve/cache.h"
#include "varve/varve.h"

namespace varve {

inline varve_page_span SpanOf(const PageSpan& page) {
  return {page.first_position, page.num_positions, page.num_rows, page.num_live_rows};
}

class CallbackObserver final : public AttentionObserver {
 public:
  CallbackObserver(varve_attention_observer callback, void* user_data)
      : callback_(callback), user_data_(user_data) {}

  void OnAttention(const AttentionMass& mass) override {
    pages_.clear();
    for (const PageSpan& page : mass.pages) pages_.push_back(SpanOf(page));
    const varve_attention_mass told = {sizeof(told),   mass.layer,          mass.num_queries,
                                       mass.num_heads, mass.sequence.value, pages_.size(),
                                       pages_.data(),  mass.mass,           mass.first_position};
    callback_(&told, user_data_);
  }

 private:
  varve_attention_observer callback_;
  void* user_data_;
  std::vector<varve_page_span> pages_;
};

class CallbackLog final : public LogSink {
 public:
  CallbackLog(varve_log_sink callback, void* user_data)
      : callback_(callback), user_data_(user_data) {}

  void OnLine(std::string_view line) override { callback_(std::string(line).c_str(), user_data_); }

 private:
  varve_log_sink callback_;
  void* user_data_;
};

class CallbackRetentionObserver final : public RetentionObserver {
 public:
  CallbackRetentionObserver(varve_retention_observer callback, void* user_data)
      : callback_(callback), user_data_(user_data) {}

  void OnRetention(const RetentionEvent& event) override {
    pages_.clear();
    for (const PageDecision& decision : event.pages) {
      pages_.push_back({SpanOf(decision.page), decision.score, static_cast<int32_t>(decision.fate),
                        decision.rung.c_str()});
    }
    const varve_retention_event told = {
        sizeof(told),        event.sequence.value, event.layer,      event.floors_bind ? 1 : 0,
        event.next_position, event.target_bytes,   event.held_bytes, pages_.size(),
        pages_.data()};
    callback_(&told, user_data_);
  }

 private:
  varve_retention_observer callback_;
  void* user_data_;
  std::vector<varve_page_decision> pages_;
};

class CallbackExecutor final : public Executor {
 public:
  CallbackExecutor(varve_parallel_for callback, void* user_data, int num_threads)
      : callback_(callback), user_data_(user_data), num_threads_(num_threads) {}

  int num_threads() const override { return num_threads_; }
  void ParallelFor(size_t count, const std::function<void(size_t, int)>& task) override {
    const auto run = [](size_t index, int32_t worker, void* task_data) {
      (*static_cast<const std::function<void(size_t, int)>*>(task_data))(index, worker);
    };
    callback_(count, run, const_cast<std::function<void(size_t, int)>*>(&task), user_data_);
  }

 private:
  varve_parallel_for callback_;
  void* user_data_;
  int num_threads_;
};

class CallbackMemory final : public PageMemory {
 public:
  explicit CallbackMemory(const varve_page_memory& callbacks) : callbacks_(callbacks) {}

  std::byte* Map(size_t bytes) override {
    return static_cast<std::byte*>(callbacks_.map(bytes, callbacks_.user_data));
  }
  void Discard(std::byte* address, size_t bytes) override {
    callbacks_.discard(address, bytes, callbacks_.user_data);
  }
  void Unmap(std::byte* address, size_t bytes) override {
    callbacks_.unmap(address, bytes, callbacks_.user_data);
  }

 private:
  varve_page_memory callbacks_;
};

}  // namespace varve

#endif  // VARVE_C_API_C_API_CALLBACKS_H_
