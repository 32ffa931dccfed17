#include "serve/tiers/redis_backend.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "serve/tiers/page_record.h"

namespace varve::serve {
namespace {

// Questions under way at once: enough to hide the round trip, few enough that a deadline leaves
// little behind.
constexpr size_t kWindow = 16;
constexpr std::chrono::seconds kPauseWhenFull{1};

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view TextOf(const redisReply& reply) { return {reply.str, reply.len}; }

}  // namespace

std::string RedisBackend::KeyText(const PageKey& key) const {
  std::string digits;
  for (const std::byte byte : key.bytes) digits += fmt::format("{:02x}", byte);
  return fmt::format("{}:{{{}}}:{}", options_.prefix, digits.substr(0, 2), digits);
}

void RedisBackend::CountError(const std::string& message) {
  const std::lock_guard lock(mutex_);
  ++stats_.errors;
  stats_.last_error = message;
}

void RedisBackend::Interrupt() {
  write_link_.Interrupt();
  read_link_.Interrupt();
}

void RedisBackend::AddTo(TierStats* stats) const {
  const std::lock_guard lock(mutex_);
  stats->AddCounts(stats_);
  const uint64_t connects = write_link_.connects() + read_link_.connects();
  stats->reconnects += connects > 2 ? connects - 2 : 0;
}

// --- writing ---

void RedisBackend::Write(std::span<const PageItem> items) {
  const TierClock::time_point now = TierClock::now();
  if (now < full_until_) {
    const std::lock_guard lock(mutex_);
    stats_.dropped_room += items.size();
    return;
  }
  const uint64_t before = [this] {
    const std::lock_guard lock(mutex_);
    return stats_.stored + stats_.known + stats_.dropped_room + stats_.dropped_error;
  }();
  const TierClock::time_point deadline = now + options_.timeout;
  Status status = write_link_.Connect();
  if (status.ok()) {
    const Result<std::vector<bool>> known = Touch(items, deadline);
    status = known.ok() ? Send(items, *known, deadline + options_.timeout) : known.status();
  }
  if (status.ok()) return;
  CountError(status.message());
  const std::lock_guard lock(mutex_);
  const uint64_t counted =
      stats_.stored + stats_.known + stats_.dropped_room + stats_.dropped_error - before;
  stats_.dropped_error += items.size() - counted;
}

Result<std::vector<bool>> RedisBackend::Touch(std::span<const PageItem> items,
                                              TierClock::time_point deadline) {
  const std::string ttl = std::to_string(options_.ttl_seconds);
  for (const PageItem& item : items) {
    const std::string key = KeyText(item.key);
    if (options_.ttl_seconds > 0) {
      write_link_.Send({"EXPIRE", key, ttl});
    } else {
      write_link_.Send({"TOUCH", key});
    }
  }
  std::vector<bool> known;
  for (size_t i = 0; i < items.size(); ++i) {
    VARVE_ASSIGN_OR_RETURN(const RedisReply reply, write_link_.Receive(deadline));
    known.push_back(reply->type == REDIS_REPLY_INTEGER && reply->integer > 0);
    const std::lock_guard lock(mutex_);
    if (known.back()) ++stats_.known;
  }
  return known;
}

Status RedisBackend::Send(std::span<const PageItem> items, const std::vector<bool>& known,
                          TierClock::time_point deadline) {
  const std::string ttl = std::to_string(options_.ttl_seconds);
  std::vector<uint64_t> sent;
  for (size_t i = 0; i < items.size(); ++i) {
    if (known[i]) continue;
    const RecordHeaderBytes head =
        WriteRecordHeader(MakeRecordHeader(items[i].key, *items[i].image, items[i].value));
    std::string record(TextOf(head));
    record += TextOf(*items[i].image);
    sent.push_back(record.size());
    const std::string key = KeyText(items[i].key);
    if (options_.ttl_seconds > 0) {
      write_link_.Send({"SET", key, record, "EX", ttl});
    } else {
      write_link_.Send({"SET", key, record});
    }
  }
  for (const uint64_t bytes : sent) {
    VARVE_ASSIGN_OR_RETURN(const RedisReply reply, write_link_.Receive(deadline));
    CountStored(*reply, bytes);
  }
  return Status();
}

void RedisBackend::CountStored(const redisReply& reply, uint64_t bytes) {
  const bool is_error = reply.type == REDIS_REPLY_ERROR;
  if (is_error) CountError(std::string(TextOf(reply)));
  const bool full = is_error && TextOf(reply).starts_with("OOM");
  if (full) full_until_ = TierClock::now() + kPauseWhenFull;
  const std::lock_guard lock(mutex_);
  if (is_error) {
    ++(full ? stats_.dropped_room : stats_.dropped_error);
    return;
  }
  ++stats_.stored;
  stats_.bytes_written += bytes;
}

// --- reading ---

void RedisBackend::Read(std::span<const PageKey> keys, TierClock::time_point deadline,
                        const Give& give) {
  std::vector<PageKey> damaged;
  Status status = read_link_.Connect();
  if (status.ok()) status = ReadPages(keys, deadline, give, &damaged);
  if (status.ok() && !damaged.empty()) status = Remove(damaged);
  if (!status.ok()) CountError(status.message());
}

Status RedisBackend::ReadPages(std::span<const PageKey> keys, TierClock::time_point deadline,
                               const Give& give, std::vector<PageKey>* damaged) {
  size_t asked = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    for (; asked < std::min(keys.size(), i + kWindow); ++asked)
      read_link_.Send({"GET", KeyText(keys[asked])});
    VARVE_ASSIGN_OR_RETURN(const RedisReply reply, read_link_.Receive(deadline));
    if (PageImage image = ImageIn(*reply, keys[i], damaged)) give(i, std::move(image));
  }
  return Status();
}

PageImage RedisBackend::ImageIn(const redisReply& reply, const PageKey& key,
                                std::vector<PageKey>* damaged) {
  if (reply.type == REDIS_REPLY_NIL) return nullptr;
  if (reply.type != REDIS_REPLY_STRING) {
    CountError(reply.type == REDIS_REPLY_ERROR ? std::string(TextOf(reply))
                                               : fmt::format("GET: answer of type {}", reply.type));
    return nullptr;
  }
  const auto record = std::as_bytes(std::span(reply.str, reply.len));
  Status status = DataLoss(fmt::format("page record: {} bytes", record.size()));
  if (record.size() >= kRecordHeaderBytes) {
    const Result<RecordHeader> header = ReadRecordHeader(record.first<kRecordHeaderBytes>());
    const auto image = record.subspan(kRecordHeaderBytes);
    status = header.ok() ? CheckRecordImage(*header, key, image) : header.status();
    if (status.ok())
      return std::make_shared<const std::vector<std::byte>>(image.begin(), image.end());
  }
  CountError(status.message());
  damaged->push_back(key);
  const std::lock_guard lock(mutex_);
  ++stats_.damaged;
  return nullptr;
}

Status RedisBackend::Remove(std::span<const PageKey> keys) {
  const TierClock::time_point deadline = TierClock::now() + options_.timeout;
  for (const PageKey& key : keys) read_link_.Send({"UNLINK", KeyText(key)});
  for (size_t i = 0; i < keys.size(); ++i)
    VARVE_RETURN_IF_ERROR(read_link_.Receive(deadline).status());
  return Status();
}

std::vector<bool> RedisBackend::Contains(std::span<const PageKey> keys,
                                         TierClock::time_point deadline) {
  std::vector<bool> found(keys.size());
  Status status = read_link_.Connect();
  for (size_t i = 0; i < keys.size() && status.ok(); ++i)
    read_link_.Send({"EXISTS", KeyText(keys[i])});
  for (size_t i = 0; i < keys.size() && status.ok(); ++i) {
    const Result<RedisReply> reply = read_link_.Receive(deadline);
    status = reply.status();
    found[i] = reply.ok() && (*reply)->type == REDIS_REPLY_INTEGER && (*reply)->integer > 0;
  }
  if (!status.ok()) CountError(status.message());
  return found;
}

}  // namespace varve::serve
