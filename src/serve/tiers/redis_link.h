// RedisLink: one connection to a Redis (hiredis), made when it is needed and made again after a
// failure, with growing pauses between attempts that fail.
//
// Commands are pipelined: Send queues, Receive writes what is queued and waits for the next answer.
// Any failure, a time-out included, closes the connection: answers that are still under way would
// be taken for others.
//
// One thread uses it; any may call Interrupt and IsAvailable.

#ifndef VARVE_SERVE_TIERS_REDIS_LINK_H_
#define VARVE_SERVE_TIERS_REDIS_LINK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "serve/tiers/page_tier.h"
#include "serve/tiers/redis_url.h"
#include "varve/status.h"

struct redisContext;
struct redisReply;

namespace varve::serve {

struct RedisReplyDelete {
  void operator()(redisReply* reply) const;
};
using RedisReply = std::unique_ptr<redisReply, RedisReplyDelete>;

class RedisLink {
 public:
  explicit RedisLink(RedisOptions options) : options_(std::move(options)) {}
  ~RedisLink();
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  // Connects if need be, within the time-out of the options. Fails at once between attempts.
  Status Connect();
  // Requires a connection.
  void Send(std::initializer_list<std::string_view> words);
  Result<RedisReply> Receive(TierClock::time_point deadline);
  void Close();

  // False between attempts.
  bool IsAvailable() const { return TierClock::now().time_since_epoch().count() >= retry_at_; }
  uint64_t connects() const { return connects_; }
  // Ends a call that waits, and all later ones.
  void Interrupt();

 private:
  Status Open();
  Status Greet();
  Status Failed(const char* what) const;
  void SetTimeout(TierClock::duration timeout);

  const RedisOptions options_;
  std::mutex mutex_;  // of the context's birth and death
  redisContext* context_ = nullptr;
  bool interrupted_ = false;
  std::chrono::milliseconds pause_{0};
  std::atomic<int64_t> retry_at_ = 0;  // on the TierClock
  std::atomic<uint64_t> connects_ = 0;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_REDIS_LINK_H_
