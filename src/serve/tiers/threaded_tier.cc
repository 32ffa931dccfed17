#include "serve/tiers/threaded_tier.h"

#include <cmath>
#include <utility>

#include "base/timer.h"

namespace varve::serve {
namespace {

constexpr uint64_t kMaxBatchBytes = uint64_t{8} << 20;

}  // namespace

ThreadedTier::ThreadedTier(std::unique_ptr<PageBackend> backend, uint64_t queue_bytes)
    : backend_(std::move(backend)),
      queue_(queue_bytes),
      writer_([this] { WriteLoop(); }),
      reader_([this] { ReadLoop(); }) {}

ThreadedTier::~ThreadedTier() {
  queue_.Stop();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  backend_->Interrupt();
  writer_.join();
  reader_.join();
}

void ThreadedTier::Put(const PageKey& key, PageImage image, double value) {
  if (image == nullptr) return;
  // What has no value has the least: a record must not hold what is no number.
  if (std::isnan(value)) value = 0;
  const WriteQueue::Pushed pushed = queue_.Push({key, std::move(image), value});
  if (pushed == WriteQueue::Pushed::kQueued) return;
  const std::lock_guard lock(mutex_);
  if (pushed == WriteQueue::Pushed::kKnown) ++stats_.known;
  if (pushed == WriteQueue::Pushed::kFull) ++stats_.dropped_queue;
}

std::vector<PageImage> ThreadedTier::Get(std::span<const PageKey> keys,
                                         TierClock::time_point deadline) {
  std::vector<PageImage> images(keys.size());
  std::vector<size_t> asked;  // those that are not in the queue
  auto question = std::make_shared<Question>();
  for (size_t i = 0; i < keys.size(); ++i) {
    images[i] = queue_.Find(keys[i]);
    if (images[i] != nullptr) continue;
    asked.push_back(i);
    question->keys.push_back(keys[i]);
  }
  question->deadline = deadline;
  question->wants_images = true;
  question->images.resize(asked.size());
  bool in_time = true;
  if (!asked.empty()) {
    in_time = Ask(question);
    const std::lock_guard lock(question->mutex);
    for (size_t i = 0; i < asked.size(); ++i) images[asked[i]] = question->images[i];
  }
  const std::lock_guard lock(mutex_);
  for (const PageImage& image : images) {
    ++(image != nullptr ? stats_.hits : stats_.misses);
    if (image == nullptr && !in_time) ++stats_.late;
    if (image != nullptr) stats_.bytes_read += image->size();
  }
  return images;
}

std::vector<bool> ThreadedTier::Contains(std::span<const PageKey> keys,
                                         TierClock::time_point deadline) {
  auto question = std::make_shared<Question>();
  question->keys.assign(keys.begin(), keys.end());
  question->deadline = deadline;
  question->found.resize(keys.size());
  if (!keys.empty()) Ask(question);
  const std::lock_guard lock(question->mutex);
  return question->found;
}

bool ThreadedTier::IsQueued(const PageKey& key) const { return queue_.Find(key) != nullptr; }

bool ThreadedTier::Ask(const std::shared_ptr<Question>& question) {
  if (!backend_->IsAvailable()) return true;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return true;
    questions_.push_back(question);
  }
  wake_.notify_one();
  std::unique_lock lock(question->mutex);
  question->answered.wait_until(lock, question->deadline, [&] { return question->done; });
  question->given_up = true;
  return question->done;
}

void ThreadedTier::ReadLoop() {
  while (true) {
    std::shared_ptr<Question> question;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !questions_.empty(); });
      if (stop_) return;
      question = std::move(questions_.front());
      questions_.pop_front();
    }
    {
      const std::lock_guard lock(question->mutex);
      if (question->given_up) continue;
    }
    Answer(*question);
    {
      const std::lock_guard lock(question->mutex);
      question->done = true;
    }
    question->answered.notify_all();
  }
}

void ThreadedTier::Answer(Question& question) {
  if (!question.wants_images) {
    std::vector<bool> found = backend_->Contains(question.keys, question.deadline);
    const std::lock_guard lock(question.mutex);
    question.found = std::move(found);
    return;
  }
  const Timer timer;
  size_t given = 0;
  backend_->Read(question.keys, question.deadline, [&](size_t index, PageImage image) {
    const std::lock_guard lock(question.mutex);
    ++given;
    if (!question.given_up) question.images[index] = std::move(image);
  });
  const TierClock::time_point now = TierClock::now();
  const bool late = now >= question.deadline;
  const std::lock_guard lock(mutex_);
  // Pages that are not there cost a round trip, and no more.
  estimate_.Observe(late ? question.keys.size() : given, timer.seconds(), now);
}

void ThreadedTier::WriteLoop() {
  while (true) {
    const std::vector<PageItem> items = queue_.Pop(backend_->max_batch(), kMaxBatchBytes);
    if (items.empty()) return;
    backend_->Write(items);
    queue_.Done(items);
  }
}

double ThreadedTier::ExpectedSeconds(size_t num_pages) const {
  const std::lock_guard lock(mutex_);
  return estimate_.Seconds(num_pages, TierClock::now());
}

bool ThreadedTier::Flush(TierClock::time_point deadline) { return queue_.WaitUntilEmpty(deadline); }

TierStats ThreadedTier::Stats() const {
  TierStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
  }
  stats.bytes_queued = queue_.bytes();
  stats.available = backend_->IsAvailable();
  backend_->AddTo(&stats);
  return stats;
}

}  // namespace varve::serve
