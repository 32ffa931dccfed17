// Where a Redis is and how it is used, as people write it:
//
//   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=VALUE&…]
//   unix://[[USER]:PASSWORD@]/PATH[?OPTION=VALUE&…]
//
// Options: prefix=TEXT in front of every key, ttl=SECONDS after the last use until a page goes,
// timeout=MILLISECONDS without an answer until a connection is given up, db=NUMBER. In USER and
// PASSWORD %XX stands for a byte. TLS (rediss://) is not spoken: docs/fleet.md says what to do.

#ifndef VARVE_SERVE_TIERS_REDIS_URL_H_
#define VARVE_SERVE_TIERS_REDIS_URL_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::serve {

struct RedisOptions {
  std::string host;  // empty: `path` is a socket
  int port = 6379;
  std::string path;
  std::string user;  // empty: the default user
  std::string password;
  int database = 0;
  std::string prefix = "varve";
  int64_t ttl_seconds = 0;  // 0: for ever, until the server evicts it
  std::chrono::milliseconds timeout{1000};

  // For messages: without the password.
  std::string Name() const;
};

// Messages never hold the password.
Result<RedisOptions> ParseRedisUrl(std::string_view url);

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_REDIS_URL_H_
