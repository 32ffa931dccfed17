#include "runtime/gguf/gguf_fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/content_hash.h"

namespace varve {
namespace {

constexpr size_t kTensorBytes = 4096;

// Hashes of parts, one after the other; each part has its own, so that nothing can move from one
// to the next.
class Digest {
 public:
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      bytes_.push_back(static_cast<std::byte>(number >> shift));
  }
  void Add(std::span<const std::byte> bytes) { Add(HashBytes(bytes.data(), bytes.size())); }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text.data(), text.size()))); }
  uint64_t Finish() const { return HashBytes(bytes_.data(), bytes_.size()); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

uint64_t ModelFingerprint(const GgufFile& file) {
  Digest digest;
  for (const std::string_view key : file.keys()) {
    const GgufValue& value = *file.Find(key);
    digest.Add(key);
    digest.Add(static_cast<uint64_t>(value.type));
    digest.Add(static_cast<uint64_t>(value.element_type));
    digest.Add(value.count);
    digest.Add(value.bytes);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    digest.Add(tensor.name);
    digest.Add(static_cast<uint64_t>(tensor.type));
    for (const int64_t dim : tensor.dims) digest.Add(static_cast<uint64_t>(dim));
    digest.Add(tensor.data.first(std::min(tensor.data.size(), kTensorBytes)));
  }
  const uint64_t fingerprint = digest.Finish();
  return fingerprint != 0 ? fingerprint : 1;
}

}  // namespace varve
