#include "serve/tiers/redis_link.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace varve::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{5000};

timeval ToTimeval(TierClock::duration duration) {
  const int64_t us = std::max<int64_t>(
      1000, std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
  timeval value = {};
  value.tv_sec = static_cast<time_t>(us / 1'000'000);
  value.tv_usec = static_cast<suseconds_t>(us % 1'000'000);
  return value;
}

// hiredis writes with write(): a server that goes away must not end this process.
void BlockPipeSignal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

void RedisReplyDelete::operator()(redisReply* reply) const { freeReplyObject(reply); }

RedisLink::~RedisLink() { Close(); }

void RedisLink::Close() {
  const std::lock_guard lock(mutex_);
  if (context_ != nullptr) redisFree(context_);
  context_ = nullptr;
}

void RedisLink::Interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (context_ != nullptr) shutdown(context_->fd, SHUT_RDWR);
}

Status RedisLink::Failed(const char* what) const {
  const bool has_reason = context_ != nullptr && context_->err != 0;
  return IoError(fmt::format("Redis {}: {}: {}", options_.Name(), what,
                             has_reason ? context_->errstr : "no connection"));
}

void RedisLink::SetTimeout(TierClock::duration timeout) {
  redisSetTimeout(context_, ToTimeval(timeout));
}

Status RedisLink::Connect() {
  if (context_ != nullptr) return Status();
  if (!IsAvailable())
    return IoError(fmt::format("Redis {}: waiting to connect again", options_.Name()));
  Status status = Open();
  if (status.ok()) status = Greet();
  if (status.ok()) {
    pause_ = milliseconds(0);
    ++connects_;
    return status;
  }
  Close();
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  retry_at_ = (TierClock::now() + pause_).time_since_epoch().count();
  return status;
}

Status RedisLink::Open() {
  BlockPipeSignal();
  const timeval timeout = ToTimeval(options_.timeout);
  redisContext* made = options_.host.empty()
                           ? redisConnectUnixWithTimeout(options_.path.c_str(), timeout)
                           : redisConnectWithTimeout(options_.host.c_str(), options_.port, timeout);
  const std::lock_guard lock(mutex_);
  context_ = made;
  if (context_ == nullptr || context_->err != 0) return Failed("connect");
  if (interrupted_) return IoError("interrupted");
  redisEnableKeepAlive(context_);
  return Status();
}

// A connection says nothing about the server behind it: a PING does.
Status RedisLink::Greet() {
  int commands = 1;
  if (!options_.password.empty()) {
    ++commands;
    if (options_.user.empty()) {
      Send({"AUTH", options_.password});
    } else {
      Send({"AUTH", options_.user, options_.password});
    }
  }
  if (options_.database != 0) {
    ++commands;
    Send({"SELECT", std::to_string(options_.database)});
  }
  Send({"PING"});
  const TierClock::time_point deadline = TierClock::now() + options_.timeout;
  for (int i = 0; i < commands; ++i) {
    VARVE_ASSIGN_OR_RETURN(const RedisReply reply, Receive(deadline));
    if (reply->type == REDIS_REPLY_ERROR)
      return IoError(fmt::format("Redis {}: {}", options_.Name(), reply->str));
  }
  return Status();
}

void RedisLink::Send(std::initializer_list<std::string_view> words) {
  std::vector<const char*> data;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    data.push_back(word.data());
    sizes.push_back(word.size());
  }
  redisAppendCommandArgv(context_, static_cast<int>(data.size()), data.data(), sizes.data());
}

Result<RedisReply> RedisLink::Receive(TierClock::time_point deadline) {
  if (context_ == nullptr) return Failed("read");
  SetTimeout(deadline - TierClock::now());
  void* reply = nullptr;
  if (redisGetReply(context_, &reply) == REDIS_OK && reply != nullptr)
    return RedisReply(static_cast<redisReply*>(reply));
  Status status = Failed("read");
  Close();
  return status;
}

}  // namespace varve::serve
