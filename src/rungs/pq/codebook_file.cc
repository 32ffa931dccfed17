// The codebook file: docs/format/codebook.md.

#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/byte_io.h"
#include "base/mapped_file.h"
#include "kernels/content_hash.h"
#include "rungs/pq/codebook_format.h"
#include "rungs/pq/codebook_limits.h"
#include "varve/codebook.h"

namespace varve {
namespace {

template <typename T>
void AppendArray(std::vector<std::byte>& out, const std::vector<T>& values) {
  AppendBytes(out, std::as_bytes(std::span<const T>(values)));
}

void Pad(std::vector<std::byte>& out) {
  out.resize((out.size() + kCodebookAlignment - 1) / kCodebookAlignment * kCodebookAlignment);
}

// Records and arrays of all tables: what the hash is of. Nothing in it depends on the names.
std::vector<std::byte> SerializeTables(const Codebook& codebook) {
  std::vector<std::byte> out;
  for (const CodebookTable& table : codebook.tables) {
    AppendNumber(out, static_cast<uint32_t>(table.part));
    AppendNumber(out, static_cast<uint32_t>(table.grain));
    AppendNumber(out, static_cast<uint32_t>(table.dim));
    AppendNumber(out, static_cast<uint32_t>(table.num_subspaces));
    AppendNumber(out, static_cast<uint32_t>(table.bits));
    AppendNumber(out, table.rotation.empty() ? uint32_t{0} : kTableHasRotation);
    AppendNumber(out, static_cast<uint64_t>(table.bytes()));
    AppendNumber(out, uint64_t{0});
  }
  for (const CodebookTable& table : codebook.tables) {
    AppendArray(out, table.scales);
    AppendArray(out, table.centroids);
    AppendArray(out, table.rotation);
    Pad(out);
  }
  return out;
}

struct TableRecord {
  uint32_t part = 0, grain = 0, dim = 0, num_subspaces = 0, bits = 0, flags = 0;
  uint64_t bytes = 0;
};

class CodebookReader {
 public:
  CodebookReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name), reader_(name_.c_str(), bytes) {}

  Result<Codebook> Read() {
    VARVE_RETURN_IF_ERROR(ReadHeader());
    VARVE_RETURN_IF_ERROR(ReadText("model_name", model_name_bytes_, codebook_.model_name));
    VARVE_RETURN_IF_ERROR(ReadText("trained_on", trained_on_bytes_, codebook_.trained_on));
    VARVE_RETURN_IF_ERROR(SkipPadding("names"));
    std::vector<TableRecord> records(num_tables_);
    for (size_t i = 0; i < records.size(); ++i) VARVE_RETURN_IF_ERROR(ReadRecord(i, records[i]));
    for (size_t i = 0; i < records.size(); ++i) VARVE_RETURN_IF_ERROR(ReadTable(i, records[i]));
    // The checksum, read with the header.
    std::span<const std::byte> checksum;
    VARVE_RETURN_IF_ERROR(reader_.Take("checksum", sizeof(uint64_t), checksum));
    VARVE_RETURN_IF_ERROR(reader_.Finish());
    const Status checked = CheckCodebook(codebook_);
    if (!checked.ok()) return reader_.Bad(checked.message());
    return std::move(codebook_);
  }

 private:
  Status ReadHeader();
  Status CheckFile(uint64_t file_bytes) const;
  Status ReadText(const char* field, uint32_t bytes, std::string& text);
  Status ReadRecord(size_t index, TableRecord& record);
  Status ReadTable(size_t index, const TableRecord& record);
  template <typename T>
  Status ReadArray(const char* field, uint64_t count, std::vector<T>& values);
  Status SkipPadding(const char* behind);
  Status CheckZero(const char* field, uint64_t value) const {
    if (value == 0) return Status();
    return reader_.Bad(fmt::format("{} is {}, not 0", field, value));
  }
  Status CheckRange(const char* field, uint64_t value, uint64_t low, uint64_t high) const {
    if (value >= low && value <= high) return Status();
    return reader_.Bad(fmt::format("{} {} is not in {} … {}", field, value, low, high));
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  ByteReader reader_;
  Codebook codebook_;
  uint32_t num_tables_ = 0, model_name_bytes_ = 0, trained_on_bytes_ = 0;
};

Status CodebookReader::ReadHeader() {
  if (!IsCodebook(bytes_)) {
    return InvalidArgument(
        fmt::format("{}: is no codebook: it does not begin with the magic of one", name_));
  }
  std::span<const std::byte> magic;
  VARVE_RETURN_IF_ERROR(reader_.Take("magic", kCodebookMagic.size(), magic));
  uint32_t version = 0, byte_order = 0, header_bytes = 0, num_layers = 0, num_kv_heads = 0;
  uint64_t file_bytes = 0, reserved = 0;
  VARVE_RETURN_IF_ERROR(reader_.Read("version", version));
  if (version != kCodebookVersion) {
    return Unimplemented(fmt::format("{}: version {} is not {}", name_, version, kCodebookVersion));
  }
  VARVE_RETURN_IF_ERROR(reader_.Read("byte_order", byte_order));
  if (byte_order != kCodebookByteOrder) {
    return reader_.Bad(
        fmt::format("byte_order {:#010x} is not {:#010x}", byte_order, kCodebookByteOrder));
  }
  VARVE_RETURN_IF_ERROR(reader_.Read("header_bytes", header_bytes));
  VARVE_RETURN_IF_ERROR(
      CheckRange("header_bytes", header_bytes, kCodebookHeaderBytes, kCodebookHeaderBytes));
  VARVE_RETURN_IF_ERROR(reader_.Read("num_tables", num_tables_));
  VARVE_RETURN_IF_ERROR(reader_.Read("file_bytes", file_bytes));
  VARVE_RETURN_IF_ERROR(CheckFile(file_bytes));
  VARVE_RETURN_IF_ERROR(reader_.Read("model_fingerprint", codebook_.model_fingerprint));
  VARVE_RETURN_IF_ERROR(reader_.Read("num_layers", num_layers));
  VARVE_RETURN_IF_ERROR(reader_.Read("num_kv_heads", num_kv_heads));
  VARVE_RETURN_IF_ERROR(reader_.Read("model_name_bytes", model_name_bytes_));
  VARVE_RETURN_IF_ERROR(reader_.Read("trained_on_bytes", trained_on_bytes_));
  VARVE_RETURN_IF_ERROR(reader_.Read("reserved", reserved));
  VARVE_RETURN_IF_ERROR(CheckRange("num_tables", num_tables_, 1, kMaxCodebookTables));
  VARVE_RETURN_IF_ERROR(CheckRange("num_layers", num_layers, 1, kMaxCodebookLayers));
  VARVE_RETURN_IF_ERROR(CheckRange("num_kv_heads", num_kv_heads, 1, kMaxCodebookHeads));
  VARVE_RETURN_IF_ERROR(
      CheckRange("model_name_bytes", model_name_bytes_, 0, kMaxCodebookNameBytes));
  VARVE_RETURN_IF_ERROR(CheckRange("trained_on_bytes", trained_on_bytes_, 0, kMaxTrainedOnBytes));
  codebook_.num_layers = static_cast<int>(num_layers);
  codebook_.num_kv_heads = static_cast<int>(num_kv_heads);
  return CheckZero("header: reserved", reserved);
}

Status CodebookReader::CheckFile(uint64_t file_bytes) const {
  if (file_bytes != bytes_.size()) {
    return reader_.Bad(
        fmt::format("file_bytes {} is not the size of the file, {}", file_bytes, bytes_.size()));
  }
  // The header is there: 8 bytes have been read to come here, and the checksum may overlap nothing.
  if (bytes_.size() < kCodebookHeaderBytes + sizeof(uint64_t)) {
    return reader_.Bad(
        fmt::format("file_bytes {} < {}", bytes_.size(), kCodebookHeaderBytes + sizeof(uint64_t)));
  }
  const size_t body = bytes_.size() - sizeof(uint64_t);
  uint64_t stored = 0;
  std::memcpy(&stored, bytes_.data() + body, sizeof(stored));
  const uint64_t computed = HashBytes(bytes_.data(), body);
  if (stored == computed) return Status();
  return reader_.Bad(
      fmt::format("checksum {:016x} is not that of its bytes, {:016x}", stored, computed));
}

Status CodebookReader::ReadText(const char* field, uint32_t bytes, std::string& text) {
  std::span<const std::byte> taken;
  VARVE_RETURN_IF_ERROR(reader_.Take(field, bytes, taken));
  text.assign(reinterpret_cast<const char*>(taken.data()), taken.size());
  return Status();
}

Status CodebookReader::ReadRecord(size_t index, TableRecord& record) {
  uint64_t reserved = 0;
  for (const auto& [field, value] : {std::pair{"part", &record.part},
                                     {"grain", &record.grain},
                                     {"dim", &record.dim},
                                     {"num_subspaces", &record.num_subspaces},
                                     {"bits", &record.bits},
                                     {"flags", &record.flags}}) {
    VARVE_RETURN_IF_ERROR(reader_.Read(field, *value));
  }
  VARVE_RETURN_IF_ERROR(reader_.Read("bytes", record.bytes));
  VARVE_RETURN_IF_ERROR(reader_.Read("reserved", reserved));
  const std::string at = fmt::format("table {}: ", index);
  VARVE_RETURN_IF_ERROR(CheckZero((at + "reserved").c_str(), reserved));
  VARVE_RETURN_IF_ERROR(CheckRange((at + "part").c_str(), record.part, 0, 1));
  VARVE_RETURN_IF_ERROR(CheckRange((at + "grain").c_str(), record.grain, 0, 2));
  VARVE_RETURN_IF_ERROR(
      CheckRange((at + "dim").c_str(), record.dim, kMinCodebookDim, kMaxCodebookDim));
  VARVE_RETURN_IF_ERROR(
      CheckRange((at + "num_subspaces").c_str(), record.num_subspaces, 1, record.dim));
  VARVE_RETURN_IF_ERROR(
      CheckRange((at + "bits").c_str(), record.bits, kMinCodebookBits, kMaxCodebookBits));
  return CheckZero((at + "unknown flags").c_str(), record.flags & ~kTableHasRotation);
}

Status CodebookReader::ReadTable(size_t index, const TableRecord& record) {
  CodebookTable table;
  table.part = record.part == 0 ? Part::kKey : Part::kValue;
  table.grain = static_cast<CodebookGrain>(record.grain);
  table.dim = static_cast<int>(record.dim);
  table.num_subspaces = static_cast<int>(record.num_subspaces);
  table.bits = static_cast<int>(record.bits);
  const int groups = codebook_.NumGroups(table.grain);
  const uint64_t num_scales = NumScales(table, groups);
  const uint64_t num_centroids = NumCentroidBytes(table, groups);
  const uint64_t num_rotation =
      (record.flags & kTableHasRotation) != 0 ? NumRotationValues(table, groups) : 0;
  const uint64_t bytes =
      num_scales * sizeof(float) + num_centroids + num_rotation * sizeof(uint16_t);
  if (record.bytes != bytes) {
    return reader_.Bad(
        fmt::format("table {}: bytes {} is not the {} of its shape", index, record.bytes, bytes));
  }
  VARVE_RETURN_IF_ERROR(ReadArray("scales", num_scales, table.scales));
  VARVE_RETURN_IF_ERROR(ReadArray("centroids", num_centroids, table.centroids));
  VARVE_RETURN_IF_ERROR(ReadArray("rotation", num_rotation, table.rotation));
  codebook_.tables.push_back(std::move(table));
  return SkipPadding("a table");
}

template <typename T>
Status CodebookReader::ReadArray(const char* field, uint64_t count, std::vector<T>& values) {
  std::span<const std::byte> taken;
  VARVE_RETURN_IF_ERROR(reader_.Take(field, count * sizeof(T), taken));
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), taken.data(), taken.size());
  return Status();
}

Status CodebookReader::SkipPadding(const char* behind) {
  const size_t at = bytes_.size() - reader_.left();
  std::span<const std::byte> taken;
  VARVE_RETURN_IF_ERROR(reader_.Take(
      "padding", (kCodebookAlignment - at % kCodebookAlignment) % kCodebookAlignment, taken));
  for (const std::byte byte : taken) {
    if (byte == std::byte{0}) continue;
    return reader_.Bad(fmt::format("padding behind {} is not 0", behind));
  }
  return Status();
}

}  // namespace

bool IsCodebook(std::span<const std::byte> bytes) {
  return bytes.size() >= kCodebookMagic.size() &&
         std::memcmp(bytes.data(), kCodebookMagic.data(), kCodebookMagic.size()) == 0;
}

std::vector<std::byte> SerializeCodebook(const Codebook& codebook) {
  const std::vector<std::byte> tables = SerializeTables(codebook);
  std::vector<std::byte> out;
  out.reserve(kCodebookHeaderBytes + kMaxCodebookNameBytes + kMaxTrainedOnBytes + tables.size());
  for (const char letter : kCodebookMagic) AppendNumber(out, letter);
  AppendNumber(out, kCodebookVersion);
  AppendNumber(out, kCodebookByteOrder);
  AppendNumber(out, kCodebookHeaderBytes);
  AppendNumber(out, static_cast<uint32_t>(codebook.tables.size()));
  const size_t file_bytes_at = out.size();
  AppendNumber(out, uint64_t{0});
  AppendNumber(out, codebook.model_fingerprint);
  AppendNumber(out, static_cast<uint32_t>(codebook.num_layers));
  AppendNumber(out, static_cast<uint32_t>(codebook.num_kv_heads));
  AppendNumber(out, static_cast<uint32_t>(codebook.model_name.size()));
  AppendNumber(out, static_cast<uint32_t>(codebook.trained_on.size()));
  AppendNumber(out, uint64_t{0});
  AppendBytes(out, std::as_bytes(std::span(codebook.model_name)));
  AppendBytes(out, std::as_bytes(std::span(codebook.trained_on)));
  Pad(out);
  AppendBytes(out, tables);
  const uint64_t file_bytes = out.size() + sizeof(uint64_t);
  std::memcpy(out.data() + file_bytes_at, &file_bytes, sizeof(file_bytes));
  AppendNumber(out, HashBytes(out.data(), out.size()));
  return out;
}

Result<Codebook> ParseCodebook(std::span<const std::byte> bytes, const std::string& name) {
  return CodebookReader(bytes, name).Read();
}

Result<std::shared_ptr<const Codebook>> LoadCodebook(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(const std::unique_ptr<const MappedFile> file, MappedFile::Open(path));
  VARVE_ASSIGN_OR_RETURN(Codebook codebook, ParseCodebook(file->bytes(), path));
  return std::make_shared<const Codebook>(std::move(codebook));
}

Status SaveCodebook(const Codebook& codebook, const std::string& path) {
  const Status checked = CheckCodebook(codebook);
  if (!checked.ok()) return InvalidArgument(fmt::format("{}: {}", path, checked.message()));
  return WriteFile(path, SerializeCodebook(codebook));
}

uint64_t CodebookHash(const Codebook& codebook) {
  const std::vector<std::byte> tables = SerializeTables(codebook);
  return HashBytes(tables.data(), tables.size());
}

}  // namespace varve
