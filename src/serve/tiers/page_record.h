// A page image as tiers store it: a header of 56 bytes, then the image
// (docs/format/page-record.md). On disk records follow one another in a segment; in Redis a value
// is one record.
//
// Functions without state, thread-safe.

#ifndef VARVE_SERVE_TIERS_PAGE_RECORD_H_
#define VARVE_SERVE_TIERS_PAGE_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "serve/tiers/page_tier.h"
#include "varve/status.h"

namespace varve::serve {

inline constexpr size_t kRecordHeaderBytes = 56;
// No model that runs has a page near this; a length beyond it is damage.
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 31;

struct RecordHeader {
  PageKey key;
  uint64_t image_bytes = 0;
  double value = 0;             // as given to PageTier::Put
  uint64_t image_checksum = 0;  // XXH3-64 of the image, seeded with the key's

  uint64_t RecordBytes() const { return kRecordHeaderBytes + image_bytes; }
};

using RecordHeaderBytes = std::array<std::byte, kRecordHeaderBytes>;

RecordHeader MakeRecordHeader(const PageKey& key, std::span<const std::byte> image, double value);
RecordHeaderBytes WriteRecordHeader(const RecordHeader& header);
// kDataLoss unless the bytes are a header.
Result<RecordHeader> ReadRecordHeader(std::span<const std::byte, kRecordHeaderBytes> bytes);
// kDataLoss unless the image is the one of this header and of this key.
Status CheckRecordImage(const RecordHeader& header, const PageKey& key,
                        std::span<const std::byte> image);

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_PAGE_RECORD_H_
