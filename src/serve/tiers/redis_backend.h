// RedisBackend: page images in a Redis that servers share. A value is a page record; its key is
// PREFIX:{XX}:HEX, 32 digits, of which XX repeats the first two: in a Cluster, or behind a proxy
// that cuts by hash tags, pages spread over 256 groups.
//
// One connection writes, another reads, so that neither waits behind the other. A page that is
// there is not sent again, only touched (EXPIRE with ttl=, TOUCH without). What fails its check is
// removed, so that it can be written anew. A server without room (OOM) is left alone for a second.
// How old pages go is the server's matter (maxmemory-policy): it does not know the values of Put.

#ifndef VARVE_SERVE_TIERS_REDIS_BACKEND_H_
#define VARVE_SERVE_TIERS_REDIS_BACKEND_H_

#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "serve/tiers/page_backend.h"
#include "serve/tiers/redis_link.h"
#include "serve/tiers/redis_url.h"

namespace varve::serve {

class RedisBackend final : public PageBackend {
 public:
  explicit RedisBackend(const RedisOptions& options)
      : options_(options), write_link_(options), read_link_(options) {}

  const char* name() const override { return "redis"; }
  void Write(std::span<const PageItem> items) override;
  size_t max_batch() const override { return 16; }
  void Read(std::span<const PageKey> keys, TierClock::time_point deadline,
            const Give& give) override;
  std::vector<bool> Contains(std::span<const PageKey> keys,
                             TierClock::time_point deadline) override;
  bool IsAvailable() const override { return read_link_.IsAvailable(); }
  void Interrupt() override;
  void AddTo(TierStats* stats) const override;

  std::string KeyText(const PageKey& key) const;

 private:
  // Which of the pages the server has; they are touched.
  Result<std::vector<bool>> Touch(std::span<const PageItem> items, TierClock::time_point deadline);
  Status Send(std::span<const PageItem> items, const std::vector<bool>& known,
              TierClock::time_point deadline);
  void CountStored(const redisReply& reply, uint64_t bytes);
  Status ReadPages(std::span<const PageKey> keys, TierClock::time_point deadline, const Give& give,
                   std::vector<PageKey>* damaged);
  Status Remove(std::span<const PageKey> keys);
  // The image in an answer to GET; null if there is none, or it fails its check.
  PageImage ImageIn(const redisReply& reply, const PageKey& key, std::vector<PageKey>* damaged);
  void CountError(const std::string& message);

  const RedisOptions options_;
  RedisLink write_link_;
  RedisLink read_link_;
  TierClock::time_point full_until_;  // of the writer
  mutable std::mutex mutex_;          // of what follows
  TierStats stats_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_REDIS_BACKEND_H_
