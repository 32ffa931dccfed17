// The Redis tier against a real server: killed, paused, flushed, filled, late and lying, it costs
// hits, and nothing else.

#include "serve/tiers/redis_testing.h"

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/timer.h"
#include "serve/tiers/page_tier_testing.h"
#include "serve/tiers/page_tiers.h"
#include "serve/tiers/redis_backend.h"
#include "serve/tiers/threaded_tier.h"

namespace varve::serve {

std::string RedisServer::Ask(std::initializer_list<std::string_view> words) const {
  RedisLink link(Options());
  if (!link.Connect().ok()) return "-no connection";
  link.Send(words);
  const Result<RedisReply> reply = link.Receive(Soon());
  if (!reply.ok()) return "-" + reply.status().message();
  if ((*reply)->type == REDIS_REPLY_INTEGER) return std::to_string((*reply)->integer);
  const std::string text((*reply)->str != nullptr ? (*reply)->str : "", (*reply)->len);
  return ((*reply)->type == REDIS_REPLY_ERROR ? "-" : "") + text;
}

namespace redis_tier_test {

#define NEED_REDIS() \
  if (!HaveRedisServer()) GTEST_SKIP() << "redis-server is not installed"

std::unique_ptr<ThreadedTier> TierOn(RedisOptions options, int port = 0) {
  if (port != 0) options.port = port;
  return std::make_unique<ThreadedTier>(std::make_unique<RedisBackend>(options), 16 << 20);
}

std::vector<PageKey> Keys(uint64_t first, uint64_t count) {
  std::vector<PageKey> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(KeyOf(first + i));
  return keys;
}

void PutPages(PageTier& tier, uint64_t first, uint64_t count, size_t bytes = 5000) {
  for (uint64_t page = first; page < first + count; ++page)
    tier.Put(KeyOf(page), ImageOf(page, bytes), 1);
}

// How many came; those that did must be right.
size_t CountRight(PageTier& tier, uint64_t first, uint64_t count, double seconds = 20,
                  size_t bytes = 5000) {
  const std::vector<PageImage> images = tier.Get(Keys(first, count), After(seconds));
  EXPECT_EQ(images.size(), count);
  size_t right = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (images[i] == nullptr) continue;
    EXPECT_EQ(*images[i], *ImageOf(first + i, bytes));
    ++right;
  }
  return right;
}

// Tries again until the link has found its way back.
size_t CountRightAtLast(PageTier& tier, uint64_t first, uint64_t count, size_t wanted) {
  size_t right = 0;
  for (int i = 0; i < 100 && right < wanted; ++i) {
    right = CountRight(tier, first, count, 2);
    if (right < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return right;
}

TEST(RedisTier, IsSharedByServers) {
  NEED_REDIS();
  const RedisServer redis;
  const auto first = TierOn(redis.Options());
  const auto second = TierOn(redis.Options());
  PutPages(*first, 0, 50);
  ASSERT_TRUE(first->Flush(Soon()));
  EXPECT_EQ(CountRight(*second, 0, 50), 50u);
  const std::vector<bool> found = second->Contains(Keys(45, 10), Soon());
  EXPECT_EQ(std::count(found.begin(), found.end(), true), 5);
  // What is there is not sent again.
  PutPages(*second, 40, 20);
  ASSERT_TRUE(second->Flush(Soon()));
  EXPECT_EQ(second->Stats().known, 10u);
  EXPECT_EQ(second->Stats().stored, 10u);
  EXPECT_EQ(second->Stats().bytes_written, 10u * 5056);
  EXPECT_EQ(redis.Ask({"DBSIZE"}), "60");
}

TEST(RedisTier, HasKeysForAClusterAndAnEndOfLife) {
  NEED_REDIS();
  const RedisServer redis;
  RedisOptions options = redis.Options();
  options.prefix = "here";
  options.ttl_seconds = 100;
  const auto tier = TierOn(options);
  PutPages(*tier, 7, 1);
  ASSERT_TRUE(tier->Flush(Soon()));
  const std::string key = RedisBackend(options).KeyText(KeyOf(7));
  EXPECT_EQ(key.size(), 4 + 1 + 4 + 1 + 32u);
  EXPECT_EQ(key.substr(0, 6), "here:{");
  EXPECT_EQ(key.substr(6, 2), key.substr(10, 2));
  const int left = std::stoi(redis.Ask({"TTL", key}));
  EXPECT_GT(left, 90);
  EXPECT_LE(left, 100);
}

TEST(RedisTier, NeverGivesValuesThatWereChanged) {
  NEED_REDIS();
  const RedisServer redis;
  const auto tier = TierOn(redis.Options());
  const RedisBackend names(redis.Options());
  PutPages(*tier, 0, 8);
  ASSERT_TRUE(tier->Flush(Soon()));
  redis.Ask({"SETRANGE", names.KeyText(KeyOf(0)), "3000", "x"});
  redis.Ask({"SETRANGE", names.KeyText(KeyOf(1)), "20", "x"});
  redis.Ask({"APPEND", names.KeyText(KeyOf(2)), "x"});
  redis.Ask({"SET", names.KeyText(KeyOf(3)), "short"});
  redis.Ask({"SET", names.KeyText(KeyOf(4)), ""});
  redis.Ask({"COPY", names.KeyText(KeyOf(5)), names.KeyText(KeyOf(6)), "REPLACE"});
  redis.Ask({"UNLINK", names.KeyText(KeyOf(7))});
  redis.Ask({"LPUSH", names.KeyText(KeyOf(7)), "a list"});
  EXPECT_EQ(CountRight(*tier, 0, 8), 1u);
  EXPECT_EQ(tier->Stats().damaged, 6u);
  // They are gone, and can be written anew.
  PutPages(*tier, 0, 7);
  ASSERT_TRUE(tier->Flush(Soon()));
  EXPECT_EQ(CountRight(*tier, 0, 8), 7u);
}

TEST(RedisTier, LosesHitsWhenTheServerIsKilledAndComesBack) {
  NEED_REDIS();
  auto redis = std::make_unique<RedisServer>();
  const int port = redis->port();
  const auto tier = TierOn(redis->Options());
  PutPages(*tier, 0, 20);
  ASSERT_TRUE(tier->Flush(Soon()));
  EXPECT_EQ(CountRight(*tier, 0, 20), 20u);
  redis.reset();
  const Timer timer;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(CountRight(*tier, 0, 20, 0.5), 0u);
    PutPages(*tier, 100, 5);
  }
  EXPECT_LT(timer.seconds(), 3);
  EXPECT_TRUE(tier->Flush(Soon()));
  EXPECT_GT(tier->Stats().dropped_error, 0u);
  EXPECT_FALSE(tier->Stats().last_error.empty());
  redis = std::make_unique<RedisServer>(std::vector<std::string>(), port);
  for (int i = 0; i < 100 && tier->Stats().stored < 40; ++i) {
    PutPages(*tier, 0, 20);
    EXPECT_TRUE(tier->Flush(Soon()));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(CountRightAtLast(*tier, 0, 20, 20), 20u);
  EXPECT_GT(tier->Stats().reconnects, 0u);
}

TEST(RedisTier, DoesNotStallOnAServerThatIsPaused) {
  NEED_REDIS();
  const RedisServer redis;
  RedisOptions options = redis.Options();
  options.timeout = std::chrono::milliseconds(200);
  const auto tier = TierOn(options);
  PutPages(*tier, 0, 20);
  ASSERT_TRUE(tier->Flush(Soon()));
  EXPECT_EQ(CountRight(*tier, 0, 20), 20u);
  redis.Signal(SIGSTOP);
  for (int i = 0; i < 20; ++i) {
    const Timer timer;
    EXPECT_EQ(CountRight(*tier, 0, 20, 0.05), 0u);
    PutPages(*tier, 1000 + 10 * i, 10, 100'000);
    EXPECT_LT(timer.seconds(), 0.5);
  }
  EXPECT_GT(tier->Stats().late, 0u);
  redis.Signal(SIGCONT);
  EXPECT_EQ(CountRightAtLast(*tier, 0, 20, 20), 20u);
}

TEST(RedisTier, TakesAFlushedServerForAnEmptyOne) {
  NEED_REDIS();
  const RedisServer redis;
  const auto tier = TierOn(redis.Options());
  PutPages(*tier, 0, 20);
  ASSERT_TRUE(tier->Flush(Soon()));
  EXPECT_EQ(redis.Ask({"FLUSHALL"}), "OK");
  EXPECT_EQ(CountRight(*tier, 0, 20), 0u);
  PutPages(*tier, 0, 20);
  ASSERT_TRUE(tier->Flush(Soon()));
  EXPECT_EQ(CountRight(*tier, 0, 20), 20u);
  EXPECT_EQ(tier->Stats().errors, 0u);
}

TEST(RedisTier, DropsWhatAFullServerRefuses) {
  NEED_REDIS();
  const RedisServer redis({"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"});
  const auto tier = TierOn(redis.Options());
  PutPages(*tier, 0, 100, 100'000);
  ASSERT_TRUE(tier->Flush(Soon()));
  const TierStats stats = tier->Stats();
  EXPECT_GT(stats.stored, 20u);
  EXPECT_GT(stats.dropped_room, 10u);
  EXPECT_EQ(stats.stored + stats.dropped_room, 100u);
  EXPECT_EQ(CountRight(*tier, 0, 100, 20, 100'000), stats.stored);
}

TEST(RedisTier, LivesWithAServerThatEvicts) {
  NEED_REDIS();
  const RedisServer redis({"--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru"});
  const auto tier = TierOn(redis.Options());
  PutPages(*tier, 0, 150, 100'000);
  ASSERT_TRUE(tier->Flush(Soon()));
  const size_t right = CountRight(*tier, 0, 150, 20, 100'000);
  EXPECT_GT(right, 20u);
  EXPECT_LT(right, 100u);
  EXPECT_EQ(tier->Stats().dropped_room, 0u);
}

TEST(RedisTier, IsNotAskedWhileComputingIsFaster) {
  NEED_REDIS();
  const RedisServer redis;
  {
    const auto tier = TierOn(redis.Options());
    PutPages(*tier, 0, 20);
    ASSERT_TRUE(tier->Flush(Soon()));
  }
  const TestListener proxy([&redis](int connection) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(redis.port()));
    if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0)
      PassLate(connection, server, std::chrono::milliseconds(60));  // a round trip: 120 ms
    close(server);
    close(connection);
  });
  RedisOptions options = redis.Options();
  options.timeout = std::chrono::milliseconds(3000);
  std::vector<std::unique_ptr<PageTier>> list;
  list.push_back(TierOn(options, proxy.port()));
  PageTiers tiers(std::move(list));
  const std::vector<PageKey> chain = Keys(0, 20);
  // Computing takes 2 s: worth it. (The first one also connects.)
  EXPECT_EQ(tiers.Fetch(chain, {0.1, 5, 0}).size(), 20u);
  EXPECT_EQ(tiers.Fetch(chain, {0.1, 5, 0}).size(), 20u);
  EXPECT_GT(tiers.tiers()[0]->ExpectedSeconds(20), 0.1);
  // Computing takes 20 ms: not even tried.
  const Timer timer;
  EXPECT_TRUE(tiers.Fetch(chain, {0.001, 5, 0}).empty());
  EXPECT_LT(timer.seconds(), 0.05);
  EXPECT_EQ(tiers.pages_skipped(), 20u);
}

TEST(RedisTier, SurvivesAServerThatAnswersAnything) {
  for (const std::string& answer :
       {std::string("hello\r\n"), std::string("+OK\r\n"), std::string("$5\r\nabcde\r\n"),
        std::string("$99999999999999999999\r\n"), std::string("*-5\r\n"), std::string(5000, '\0'),
        std::string(":1\r\n"), std::string("-ERR no\r\n"), std::string("$-1\r\n")}) {
    const TestListener liar([&answer](int connection) {
      std::vector<char> buffer(1 << 16);
      send(connection, "+PONG\r\n", 7, MSG_NOSIGNAL);
      while (recv(connection, buffer.data(), buffer.size(), 0) > 0) {
        if (send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) <= 0) break;
      }
      close(connection);
    });
    RedisOptions options;
    options.host = "127.0.0.1";
    options.timeout = std::chrono::milliseconds(30);
    const auto tier = TierOn(options, liar.port());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(CountRight(*tier, 1, 3, 0.03), 0u);
      tier->Contains(Keys(0, 3), After(0.03));
      PutPages(*tier, 50, 2);
      EXPECT_TRUE(tier->Flush(Soon()));
    }
  }
}

TEST(RedisTier, AuthenticatesAndSaysWhyNot) {
  NEED_REDIS();
  const RedisServer redis({"--requirepass", "secret"});
  RedisOptions options = redis.Options();
  const auto stranger = TierOn(options);
  PutPages(*stranger, 0, 2);
  ASSERT_TRUE(stranger->Flush(Soon()));
  EXPECT_EQ(CountRight(*stranger, 0, 2), 0u);
  EXPECT_NE(stranger->Stats().last_error.find("NOAUTH"), std::string::npos)
      << stranger->Stats().last_error;
  options.password = "secret";
  const auto tier = TierOn(options);
  PutPages(*tier, 0, 2);
  ASSERT_TRUE(tier->Flush(Soon()));
  EXPECT_EQ(tier->Stats().stored, 2u);
}

TEST(RedisUrl, IsReadPartByPart) {
  const RedisOptions all =
      *ParseRedisUrl("redis://ann:p%40ss@host:7000/3?prefix=a:b&ttl=60&timeout=20");
  EXPECT_EQ(all.user, "ann");
  EXPECT_EQ(all.password, "p@ss");
  EXPECT_EQ(all.host, "host");
  EXPECT_EQ(all.port, 7000);
  EXPECT_EQ(all.database, 3);
  EXPECT_EQ(all.prefix, "a:b");
  EXPECT_EQ(all.ttl_seconds, 60);
  EXPECT_EQ(all.timeout.count(), 20);
  EXPECT_EQ(ParseRedisUrl("redis://[::1]:7000")->host, "::1");
  EXPECT_EQ(ParseRedisUrl("redis://h")->port, 6379);
  EXPECT_EQ(ParseRedisUrl("unix://:pw@/run/redis.sock?db=2")->path, "/run/redis.sock");
  EXPECT_EQ(ParseRedisUrl("unix://:pw@/run/redis.sock?db=2")->database, 2);
}

TEST(RedisUrl, IsRefusedWithoutItsPassword) {
  for (const char* url : {"http://h", "redis://", "redis://:sesame@", "redis://:sesame@h:0",
                          "redis://:sesame@h:70000", "redis://:sesame@h/x", "redis://sesame@h",
                          "redis://:sesame@h?ttl", "redis://:sesame@h?ttl=-1",
                          "redis://:sesame@h?what=1", "redis://:sesame@h?prefix={x}",
                          "redis://:sesame%4@h", "unix://:sesame@run", "rediss://:sesame@h"}) {
    const Status status = ParseRedisUrl(url).status();
    EXPECT_FALSE(status.ok()) << url;
    EXPECT_EQ(status.message().find("sesame"), std::string::npos) << status.message();
  }
}

}  // namespace redis_tier_test
}  // namespace varve::serve
