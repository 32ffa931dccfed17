#include "runtime/torch/zip_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "base/quoted.h"

namespace varve {
namespace {

constexpr uint32_t kLocalSignature = 0x04034B50;
constexpr uint32_t kEntrySignature = 0x02014B50;
constexpr uint32_t kEndSignature = 0x06054B50;
constexpr uint32_t kZip64EndSignature = 0x06064B50;
constexpr uint32_t kZip64LocatorSignature = 0x07064B50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kEntryBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kZip64EndBytes = 56;
constexpr size_t kZip64LocatorBytes = 20;
constexpr size_t kMaxCommentBytes = 65535;
constexpr uint16_t kZip64Extra = 1;
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kSizesFollow = 8;
// In a field of 16 or 32 bits: the zip64 record has the value.
constexpr uint16_t kElsewhere16 = 0xFFFF;
constexpr uint32_t kElsewhere32 = 0xFFFFFFFF;

template <typename T>
T At(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The zip64 record replaces fields that are full, in this order; it has no others.
Status ReadZip64Extra(std::span<const std::byte> extra, std::span<uint64_t* const> fields) {
  ByteReader reader("extra field", extra);
  while (reader.left() > 0) {
    uint16_t id = 0, size = 0;
    std::span<const std::byte> data;
    VARVE_RETURN_IF_ERROR(reader.Read("id", id));
    VARVE_RETURN_IF_ERROR(reader.Read("size", size));
    VARVE_RETURN_IF_ERROR(reader.Take("data", size, data));
    if (id != kZip64Extra) continue;
    ByteReader values("zip64 field", data);
    for (uint64_t* field : fields) {
      if (*field == kElsewhere32) VARVE_RETURN_IF_ERROR(values.Read("value", *field));
    }
  }
  return Status();
}

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    table[i] = crc;
  }
  return table;
}

}  // namespace

uint32_t ZipCrc(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xFF];
  }
  return ~crc;
}

Status ZipReader::Bad(const std::string& message) const {
  return DataLoss(fmt::format("{}: {}", name_, message));
}

Result<ZipReader> ZipReader::Open(std::span<const std::byte> bytes, const std::string& name) {
  ZipReader reader(bytes, name);
  VARVE_ASSIGN_OR_RETURN(const Directory directory, reader.FindDirectory());
  VARVE_RETURN_IF_ERROR(reader.ReadDirectory(directory));
  VARVE_RETURN_IF_ERROR(reader.CheckOverlap(directory.at));
  return reader;
}

// The end record is the last thing but a comment, whose length it tells.
Result<ZipReader::Directory> ZipReader::FindDirectory() const {
  if (bytes_.size() < kEndBytes) {
    return InvalidArgument(fmt::format("{}: is no zip: it has {} bytes", name_, bytes_.size()));
  }
  uint64_t end_at = 0;
  bool found = false;
  const size_t furthest = std::min(bytes_.size() - kEndBytes, kMaxCommentBytes);
  for (size_t comment = 0; comment <= furthest && !found; ++comment) {
    end_at = bytes_.size() - kEndBytes - comment;
    found = At<uint32_t>(bytes_, end_at) == kEndSignature &&
            At<uint16_t>(bytes_, end_at + 20) == comment;
  }
  if (!found) return InvalidArgument(fmt::format("{}: is no zip: it has no end record", name_));
  if (At<uint16_t>(bytes_, end_at + 4) != 0 || At<uint16_t>(bytes_, end_at + 6) != 0) {
    return Unimplemented(fmt::format("{}: is one of several disks", name_));
  }
  Directory directory{At<uint16_t>(bytes_, end_at + 10), At<uint32_t>(bytes_, end_at + 12),
                      At<uint32_t>(bytes_, end_at + 16)};
  uint64_t directory_end = end_at;
  if (end_at >= kZip64LocatorBytes &&
      At<uint32_t>(bytes_, end_at - kZip64LocatorBytes) == kZip64LocatorSignature) {
    VARVE_RETURN_IF_ERROR(ReadZip64(end_at, directory));
    directory_end = end_at - kZip64LocatorBytes;
  }
  if (directory.at > directory_end || directory.bytes > directory_end - directory.at) {
    return Bad(fmt::format("directory of {} bytes at {} does not fit before its end record at {}",
                           directory.bytes, directory.at, directory_end));
  }
  if (directory.entries > directory.bytes / kEntryBytes) {
    return Bad(fmt::format("directory of {} bytes cannot have {} entries", directory.bytes,
                           directory.entries));
  }
  return directory;
}

Status ZipReader::ReadZip64(uint64_t end_at, Directory& directory) const {
  const uint64_t locator_at = end_at - kZip64LocatorBytes;
  const uint64_t at = At<uint64_t>(bytes_, locator_at + 8);
  if (locator_at < kZip64EndBytes || at > locator_at - kZip64EndBytes) {
    return Bad(fmt::format("zip64 end record at {} does not fit before its locator at {}", at,
                           locator_at));
  }
  if (At<uint32_t>(bytes_, at) != kZip64EndSignature) {
    return Bad(fmt::format("zip64 end record at {} has no signature", at));
  }
  const Directory large{At<uint64_t>(bytes_, at + 32), At<uint64_t>(bytes_, at + 40),
                        At<uint64_t>(bytes_, at + 48)};
  const auto agree = [](uint64_t small, uint64_t large_value, uint64_t elsewhere) {
    return small == elsewhere || small == large_value;
  };
  if (!agree(directory.entries, large.entries, kElsewhere16) ||
      !agree(directory.bytes, large.bytes, kElsewhere32) ||
      !agree(directory.at, large.at, kElsewhere32)) {
    return Bad("its end record and its zip64 end record disagree");
  }
  directory = large;
  return Status();
}

Status ZipReader::ReadDirectory(const Directory& directory) {
  ByteReader reader("directory", bytes_.subspan(directory.at, directory.bytes));
  // The count fits the bytes: at most 1 / 46 of the file.
  entries_.reserve(directory.entries);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    std::span<const std::byte> head, name, extra, comment;
    Status status = reader.Take("entry", kEntryBytes, head);
    if (status.ok() && At<uint32_t>(head, 0) != kEntrySignature) {
      return Bad(fmt::format("entry {} of the directory has no signature", i));
    }
    if (status.ok()) status = reader.Take("name", At<uint16_t>(head, 28), name);
    if (status.ok()) status = reader.Take("extra field", At<uint16_t>(head, 30), extra);
    if (status.ok()) status = reader.Take("comment", At<uint16_t>(head, 32), comment);
    if (!status.ok()) return Bad(fmt::format("entry {}: {}", i, status.message()));
    ZipEntry entry{Text(name), At<uint32_t>(head, 42), At<uint32_t>(head, 24),
                   At<uint32_t>(head, 16)};
    uint64_t packed_bytes = At<uint32_t>(head, 20);
    uint64_t* const fields[] = {&entry.bytes, &packed_bytes, &entry.header_at};
    status = ReadZip64Extra(extra, fields);
    if (!status.ok())
      return Bad(fmt::format("entry {}: {}", Printable(entry.name), status.message()));
    if ((At<uint16_t>(head, 8) & kEncrypted) != 0) {
      return Unimplemented(fmt::format("{}: entry {} is encrypted", name_, Printable(entry.name)));
    }
    if (const uint16_t method = At<uint16_t>(head, 10); method != 0) {
      return Unimplemented(fmt::format("{}: entry {} is compressed (method {}), not stored", name_,
                                       Printable(entry.name), method));
    }
    if (packed_bytes != entry.bytes) {
      return Bad(fmt::format("entry {} is stored in {} bytes, not its {}", Printable(entry.name),
                             packed_bytes, entry.bytes));
    }
    entries_.push_back(entry);
  }
  if (reader.left() != 0) {
    return Bad(fmt::format("{} bytes follow the entries of the directory", reader.left()));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i].name == entries_[i - 1].name) {
      return Bad(fmt::format("entry {} is there twice", Printable(entries_[i].name)));
    }
  }
  return Status();
}

// Where the content lies; the local header has been compared.
Result<std::span<const std::byte>> ZipReader::Locate(const ZipEntry& entry) const {
  const auto bad = [&](const std::string& message) {
    return Bad(fmt::format("entry {}: {}", Printable(entry.name), message));
  };
  if (entry.header_at > bytes_.size() || bytes_.size() - entry.header_at < kLocalBytes) {
    return bad(fmt::format("header at {} does not fit {} bytes", entry.header_at, bytes_.size()));
  }
  const std::span<const std::byte> rest = bytes_.subspan(entry.header_at);
  if (At<uint32_t>(rest, 0) != kLocalSignature) {
    return bad(fmt::format("header at {} has no signature", entry.header_at));
  }
  const uint16_t flags = At<uint16_t>(rest, 6), method = At<uint16_t>(rest, 8);
  const uint32_t packed_bytes = At<uint32_t>(rest, 18), plain_bytes = At<uint32_t>(rest, 22);
  const size_t name_bytes = At<uint16_t>(rest, 26), extra_bytes = At<uint16_t>(rest, 28);
  const size_t skipped = kLocalBytes + name_bytes + extra_bytes;
  if (skipped > rest.size() || entry.bytes > rest.size() - skipped) {
    return bad(fmt::format("its {} bytes do not fit the {} that are left", entry.bytes,
                           rest.size() - std::min(skipped, rest.size())));
  }
  if (Text(rest.subspan(kLocalBytes, name_bytes)) != entry.name) {
    return bad("its header has another name");
  }
  const auto lies = [&](uint32_t size) {
    return size != entry.bytes && size != kElsewhere32 &&
           !((flags & kSizesFollow) != 0 && size == 0);
  };
  if ((flags & kEncrypted) != 0 || method != 0 || lies(packed_bytes) || lies(plain_bytes)) {
    return bad("its header and the directory disagree");
  }
  return rest.subspan(skipped, entry.bytes);
}

Status ZipReader::CheckOverlap(uint64_t directory_at) const {
  struct Range {
    uint64_t begin, end;
    std::string_view name;
  };
  std::vector<Range> ranges;
  ranges.reserve(entries_.size());
  for (const ZipEntry& entry : entries_) {
    VARVE_ASSIGN_OR_RETURN(const auto content, Locate(entry));
    const auto end = static_cast<uint64_t>(content.data() - bytes_.data()) + content.size();
    ranges.push_back({entry.header_at, end, entry.name});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    const bool last = i + 1 == ranges.size();
    if (ranges[i].end <= (last ? directory_at : ranges[i + 1].begin)) continue;
    return Bad(fmt::format("entry {} overlaps {}", Printable(ranges[i].name),
                           last ? std::string("the directory")
                                : fmt::format("entry {}", Printable(ranges[i + 1].name))));
  }
  return Status();
}

const ZipEntry* ZipReader::Find(std::string_view name) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const ZipEntry& entry, std::string_view n) { return entry.name < n; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

Result<std::span<const std::byte>> ZipReader::Read(const ZipEntry& entry) const {
  Result<std::span<const std::byte>> content = Locate(entry);
  if (!content.ok()) return content.status();
  const uint32_t crc = ZipCrc(*content);
  if (crc == entry.crc) return content;
  return Bad(fmt::format("entry {}: CRC-32 {:08x} is not that of its bytes, {:08x}",
                         Printable(entry.name), entry.crc, crc));
}

}  // namespace varve
