#include "serve/tiers/page_record.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "kernels/content_hash.h"

namespace varve::serve {
namespace {

constexpr uint32_t kRecordMagic = 0x47505256;  // "VRPG"
constexpr uint32_t kRecordVersion = 1;
constexpr const char* kWhat = "page record";

uint64_t ImageChecksum(const PageKey& key, std::span<const std::byte> image) {
  return HashBytes(image.data(), image.size(), HashBytes(key.bytes.data(), key.bytes.size()));
}

}  // namespace

RecordHeader MakeRecordHeader(const PageKey& key, std::span<const std::byte> image, double value) {
  return {key, image.size(), value, ImageChecksum(key, image)};
}

RecordHeaderBytes WriteRecordHeader(const RecordHeader& header) {
  std::vector<std::byte> bytes;
  bytes.reserve(kRecordHeaderBytes);
  AppendNumber(bytes, kRecordMagic);
  AppendNumber(bytes, kRecordVersion);
  AppendBytes(bytes, header.key.bytes);
  AppendNumber(bytes, header.image_bytes);
  AppendNumber(bytes, std::bit_cast<uint64_t>(header.value));
  AppendNumber(bytes, header.image_checksum);
  AppendNumber(bytes, HashBytes(bytes.data(), bytes.size()));
  RecordHeaderBytes result;
  std::memcpy(result.data(), bytes.data(), result.size());
  return result;
}

Result<RecordHeader> ReadRecordHeader(std::span<const std::byte, kRecordHeaderBytes> bytes) {
  ByteReader reader(kWhat, bytes);
  RecordHeader header;
  uint32_t magic = 0;
  uint32_t version = 0;
  uint64_t value_bits = 0;
  uint64_t checksum = 0;
  std::span<const std::byte> key;
  VARVE_RETURN_IF_ERROR(reader.Read("magic", magic));
  VARVE_RETURN_IF_ERROR(reader.Read("version", version));
  VARVE_RETURN_IF_ERROR(reader.Take("key", header.key.bytes.size(), key));
  VARVE_RETURN_IF_ERROR(reader.Read("image_bytes", header.image_bytes));
  VARVE_RETURN_IF_ERROR(reader.Read("value", value_bits));
  VARVE_RETURN_IF_ERROR(reader.Read("image_checksum", header.image_checksum));
  VARVE_RETURN_IF_ERROR(reader.Read("header_checksum", checksum));
  std::memcpy(header.key.bytes.data(), key.data(), key.size());
  header.value = std::bit_cast<double>(value_bits);
  if (magic != kRecordMagic) return reader.Bad(fmt::format("magic {:#010x}", magic));
  if (version != kRecordVersion)
    return reader.Bad(fmt::format("version {} is not {}", version, kRecordVersion));
  const uint64_t expected = HashBytes(bytes.data(), bytes.size() - sizeof(checksum));
  if (checksum != expected)
    return reader.Bad(fmt::format("header checksum {:#018x} is not {:#018x}", checksum, expected));
  if (header.image_bytes > kMaxImageBytes)
    return reader.Bad(fmt::format("image_bytes {} > {}", header.image_bytes, kMaxImageBytes));
  if (std::isnan(header.value)) return reader.Bad("value is not a number");
  return header;
}

Status CheckRecordImage(const RecordHeader& header, const PageKey& key,
                        std::span<const std::byte> image) {
  if (header.key != key) return DataLoss(fmt::format("{}: is of another key", kWhat));
  if (header.image_bytes != image.size()) {
    return DataLoss(
        fmt::format("{}: has {} bytes, not {}", kWhat, image.size(), header.image_bytes));
  }
  const uint64_t checksum = ImageChecksum(key, image);
  if (checksum == header.image_checksum) return Status();
  return DataLoss(
      fmt::format("{}: checksum {:#018x} is not {:#018x}", kWhat, checksum, header.image_checksum));
}

}  // namespace varve::serve
