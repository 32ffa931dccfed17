// Packed pages in a .varve file: their payloads, and the dictionaries that they need, each once.
// CacheFile checks them when it reads (its part of cache_file_packed.cc).

#ifndef VARVE_FILE_CACHE_FILE_PACKED_H_
#define VARVE_FILE_CACHE_FILE_PACKED_H_

#include <cstddef>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "file/cache_file_format.h"
#include "pages/packed_page.h"
#include "pages/page.h"
#include "varve/status.h"

namespace varve {

// The ends of a page's strips, u32 each, lie in front of them.
constexpr size_t PackedEndsBytes(int num_kv_heads) {
  return 2 * sizeof(uint32_t) * static_cast<size_t>(num_kv_heads);
}
// Bytes of the strips alone; 0 if the page is raw. The record has been checked.
size_t PackedBytesOf(const PageRecord& page, int num_kv_heads);

// The payload of a packed page, in memory or unread; only an unread one is checked. `strips`,
// unless null, receives the strips of the payload.
Status PackedImage(const Page& page, std::vector<std::byte>* image, PackedStrips* strips);

// The payload of strips.
void PackedPayload(const PackedStrips& strips, std::vector<std::byte>* image);

// Collects dictionaries into their two sections. Not thread-safe.
class DictionaryWriter {
 public:
  // Adds the dictionaries that the strips name; those that they extend come first.
  Status Add(const PackedStrips& strips);

  bool empty() const { return records_.empty(); }
  std::vector<std::byte> TakeRecords() { return std::move(records_); }
  std::vector<std::byte> TakeData() { return std::move(data_); }

 private:
  Status AddOne(const std::shared_ptr<const store::Dictionary>& dictionary);

  std::unordered_set<uint64_t> written_;  // hashes
  std::vector<std::byte> records_;
  std::vector<std::byte> data_;
};

}  // namespace varve

#endif  // VARVE_FILE_CACHE_FILE_PACKED_H_
