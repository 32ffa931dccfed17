// StripReader: the raw bytes of a strip, wherever they are. A strip of a page that has them is
// given as it lies; one of a packed page is unpacked, and one on a device copied, into a buffer of
// the reader's own, which the next call with the same slot overwrites.
//
// One reader per thread; of pages on a device one at a time. A strip that cannot be had is an
// error: the reader keeps the first one, and what it returned for it must not be used.

#ifndef VARVE_PAGES_STRIP_READER_H_
#define VARVE_PAGES_STRIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pages/page.h"
#include "varve/status.h"

namespace varve {

class StripReader {
 public:
  explicit StripReader(const CacheShape& shape) : shape_(&shape) {}

  const std::byte* Get(const Page& page, Part part, int head, size_t slot = 0);

  const Status& status() const { return status_; }
  // Work since the last Reset.
  uint64_t strips_unpacked() const { return strips_; }
  uint64_t bytes_unpacked() const { return bytes_; }
  double unpack_us() const { return us_; }
  size_t buffer_bytes() const;
  // Forgets the error and the counts.
  void Reset();

 private:
  // At least `bytes`, aligned as the kernels want it.
  std::byte* Buffer(size_t slot, size_t bytes);

  const CacheShape* shape_;
  std::vector<std::vector<std::byte>> buffers_;  // by slot
  Status status_;
  uint64_t strips_ = 0;
  uint64_t bytes_ = 0;
  double us_ = 0;
};

// Unpacks one strip of a page into `out` (its strip bytes), checksum verified. Reads nothing of the
// page that ever changes; `packed` is its packed form.
Status UnpackStrip(const CacheShape& shape, const Page& page, const PackedPage& packed, Part part,
                   int head, std::byte* out);

// Unpacks all strips of a page into `out` [page.bytes], as they lie in a page.
Status RestorePage(const CacheShape& shape, const Page& page, const PackedPage& packed,
                   std::byte* out);

}  // namespace varve

#endif  // VARVE_PAGES_STRIP_READER_H_
