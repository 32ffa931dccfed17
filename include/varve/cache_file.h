// What a .varve file is, without a cache: for programs that list, check or choose files, and to
// learn the plan and shape that a cache must have to load one.
//
// Files are written by Cache::Save and read by Cache::Load; docs/format/cache-file.md shows their
// bytes. Functions without state, thread-safe.

#ifndef VARVE_CACHE_FILE_H_
#define VARVE_CACHE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "varve/cache.h"
#include "varve/export.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

struct CacheFileInfo {
  uint32_t version = 0;
  CacheShape shape;
  std::string plan_text;  // canonical
  Plan plan;
  uint64_t model_fingerprint = 0;  // 0: not said
  std::string model_name;

  struct Sequence {
    int64_t next_position = 0;
    uint64_t num_tokens = 0;  // token ids in the file
    int64_t live_rows = 0;    // summed over layers
    int64_t tokens_seen = 0;  // next_position, unless folding has restarted positions
  };
  std::vector<Sequence> sequences;

  uint64_t pages = 0;
  uint64_t pages_shared = 0;     // in more than one table
  std::vector<RungBytes> rungs;  // by rung and state
  uint64_t file_bytes = 0;
  uint64_t page_bytes = 0;        // of all pages, as stored
  uint64_t dictionaries = 0;      // of packed pages,
  uint64_t dictionary_bytes = 0;  // and their bytes
  uint64_t bytes_f16 = 0;         // what the live rows of all sequences would take in plain f16
  uint64_t bytes_f16_seen = 0;    // what all tokens that they have seen would take
};

// Checks header, index and tables, not the pages. Errors are those of Cache::Load.
VARVE_API Result<CacheFileInfo> ReadCacheFileInfo(const std::string& path);

// Checks everything, every page included; the first error is what Load or a later read would say.
VARVE_API Status VerifyCacheFile(const std::string& path);

}  // namespace varve

#endif  // VARVE_CACHE_FILE_H_
