#include "serve/tiers/disk_backend.h"
#include "serve/tiers/page_tiers.h"
#include "serve/tiers/threaded_tier.h"
#ifdef VARVE_HAVE_HIREDIS
#include "serve/tiers/redis_backend.h"
#endif

namespace varve::serve {
namespace {

#ifdef VARVE_HAVE_HIREDIS
Result<std::unique_ptr<PageBackend>> OpenRedis(const std::string& url) {
  VARVE_ASSIGN_OR_RETURN(const RedisOptions options, ParseRedisUrl(url));
  return std::unique_ptr<PageBackend>(std::make_unique<RedisBackend>(options));
}
#else
Result<std::unique_ptr<PageBackend>> OpenRedis(const std::string&) {
  return Unimplemented("this build has no Redis tier: hiredis was not there");
}
#endif

}  // namespace

bool HasRedis() {
#ifdef VARVE_HAVE_HIREDIS
  return true;
#else
  return false;
#endif
}

Result<std::unique_ptr<PageTiers>> OpenTiers(const TierSettings& settings) {
  std::vector<std::unique_ptr<PageTier>> tiers;
  if (!settings.disk_folder.empty()) {
    DiskOptions options;
    options.folder = settings.disk_folder;
    options.max_bytes = settings.disk_bytes;
    VARVE_ASSIGN_OR_RETURN(std::unique_ptr<PageBackend> disk, DiskBackend::Open(options));
    tiers.push_back(std::make_unique<ThreadedTier>(std::move(disk), settings.queue_bytes));
  }
  if (!settings.redis_url.empty()) {
    VARVE_ASSIGN_OR_RETURN(std::unique_ptr<PageBackend> redis, OpenRedis(settings.redis_url));
    tiers.push_back(std::make_unique<ThreadedTier>(std::move(redis), settings.queue_bytes));
  }
  return std::make_unique<PageTiers>(std::move(tiers));
}

}  // namespace varve::serve
