#include "pages/strip_reader.h"

#include <string>

#include "base/timer.h"
#include "pages/packed_page.h"
#include "pages/page_store.h"
#include "store/part_codec.h"

namespace varve {

Status UnpackStrip(const CacheShape& shape, const Page& page, const PackedPage& packed, Part part,
                   int head, std::byte* out) {
  const size_t strip = StripIndex(part, head);
  Status status = store::Unpack(packed.Strip(strip), packed.DictionaryOf(strip),
                                {{out, page.part(part).strip_bytes}, 0});
  if (status.ok()) return status;
  return DataLoss("layer " + std::to_string(page.layer) + ", page at " +
                  std::to_string(page.first_position) + ", " + (part == Part::kKey ? "K" : "V") +
                  " of head " + std::to_string(head) + " of " + std::to_string(shape.num_kv_heads) +
                  " cannot be restored: " + status.message());
}

Status RestorePage(const CacheShape& shape, const Page& page, const PackedPage& packed,
                   std::byte* out) {
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    for (const Part part : kParts) {
      VARVE_RETURN_IF_ERROR(UnpackStrip(shape, page, packed, part, head, out));
      out += page.part(part).strip_bytes;
    }
  }
  return Status();
}

std::byte* StripReader::Buffer(size_t slot, size_t bytes) {
  // The kernels read whole vectors, aligned.
  constexpr size_t kAlign = 64;
  if (buffers_.size() <= slot) buffers_.resize(slot + 1);
  std::vector<std::byte>& buffer = buffers_[slot];
  if (buffer.size() < bytes + kAlign) buffer.resize(bytes + kAlign);
  const size_t misaligned = reinterpret_cast<uintptr_t>(buffer.data()) % kAlign;
  return buffer.data() + (misaligned == 0 ? 0 : kAlign - misaligned);
}

const std::byte* StripReader::Get(const Page& page, Part part, int head, size_t slot) {
  const size_t strip_bytes = page.part(part).strip_bytes;
  if (page.HasRaw()) {
    DeviceBytes* device = page.store->device();
    if (device == nullptr) return page.Strip(part, head);
    std::byte* copy = Buffer(slot, strip_bytes);
    Status copied = device->ToHost(page.Strip(part, head), strip_bytes, copy);
    if (!copied.ok() && status_.ok()) status_ = std::move(copied);
    return copy;
  }
  const Timer timer;
  std::byte* out = Buffer(slot, strip_bytes);
  const Status status = UnpackStrip(*shape_, page, *page.packed()->packed, part, head, out);
  if (!status.ok() && status_.ok()) status_ = status;
  ++strips_;
  bytes_ += strip_bytes;
  us_ += timer.us();
  return out;
}

size_t StripReader::buffer_bytes() const {
  size_t bytes = 0;
  for (const std::vector<std::byte>& buffer : buffers_) bytes += buffer.capacity();
  return bytes;
}

void StripReader::Reset() {
  status_ = Status();
  strips_ = bytes_ = 0;
  us_ = 0;
}

}  // namespace varve
