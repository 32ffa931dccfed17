// Writes sequences of a cache to a .varve file (docs/format/cache-file.md), through AtomicFile, or
// to memory, as an image: the same bytes without the room that lets a file be mapped.
//
// Pages are collected layer by layer, each once. Rows that were never written (open pages keep room
// for them) become zeros, so that no old content of a slot leaks. Pages that are still in another
// file are read from there and checked, and stay unread in the cache. Packed pages are written
// packed, after unpacking them for a check, and every dictionary once; in an image without
// dictionaries.
//
// A function without state; the cache must not change meanwhile.

#ifndef VARVE_FILE_CACHE_FILE_WRITER_H_
#define VARVE_FILE_CACHE_FILE_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "pages/page.h"
#include "pages/sequence.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

struct CacheFileContent {
  CacheShape shape;
  std::string plan_text;
  uint64_t model_fingerprint = 0;
  std::string model_name;
  struct Item {
    const Sequence* sequence = nullptr;
    std::span<const int32_t> tokens;
  };
  std::vector<Item> sequences;
};

Result<std::vector<std::byte>> MakeCacheImage(const CacheFileContent& content);

Status WriteCacheFile(const std::string& path, const CacheFileContent& content, FileOps* ops);

}  // namespace varve

#endif  // VARVE_FILE_CACHE_FILE_WRITER_H_
