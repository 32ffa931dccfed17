#include "tests/cache_file_testing.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>

namespace varve {
namespace {

bool Inside(const std::vector<std::byte>& bytes, uint64_t offset, uint64_t count) {
  return offset <= bytes.size() && count <= bytes.size() - offset;
}

template <typename Record>
void Overwrite(const Record& record, size_t at, std::vector<std::byte>* bytes) {
  std::vector<std::byte> fields;
  PutRecord(record, &fields);
  std::copy(fields.begin(), fields.end(), bytes->begin() + static_cast<ptrdiff_t>(at));
}

size_t DirectoryEnd(const std::vector<std::byte>& bytes) {
  if (bytes.size() < FileHeader::kBytes) return 0;
  const auto header = GetRecord<FileHeader>(bytes.data());
  const uint64_t directory = uint64_t{SectionRecord::kBytes} * header.num_sections;
  return Inside(bytes, FileHeader::kBytes, directory) ? FileHeader::kBytes + directory : 0;
}

}  // namespace

std::vector<std::byte> ReadFileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(file)),
                                std::istreambuf_iterator<char>());
  const auto* begin = reinterpret_cast<const std::byte*>(chars.data());
  return {begin, begin + chars.size()};
}

void WriteFileBytes(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

SectionPlace FindSection(const std::vector<std::byte>& bytes, SectionKind kind) {
  for (size_t at = FileHeader::kBytes; at < DirectoryEnd(bytes); at += SectionRecord::kBytes) {
    const auto record = GetRecord<SectionRecord>(bytes.data() + at);
    if (record.kind == static_cast<uint32_t>(kind) && Inside(bytes, record.offset, record.bytes))
      return {record.offset, record.bytes};
  }
  return {};
}

void RepairChecksums(std::vector<std::byte>* bytes) {
  const auto hash = [bytes](uint64_t offset, uint64_t count) {
    return FileChecksum(std::span(*bytes).subspan(offset, count));
  };
  const SectionPlace dictionaries = FindSection(*bytes, SectionKind::kDictionaries);
  const SectionPlace data = FindSection(*bytes, SectionKind::kDictionaryData);
  for (size_t i = 0; i < dictionaries.bytes / DictionaryRecord::kBytes; ++i) {
    const size_t at = dictionaries.offset + i * DictionaryRecord::kBytes;
    auto record = GetRecord<DictionaryRecord>(bytes->data() + at);
    if (record.offset > data.bytes || record.bytes > data.bytes - record.offset) continue;
    record.checksum = hash(data.offset + record.offset, record.bytes);
    Overwrite(record, at, bytes);
  }
  const SectionPlace pages = FindSection(*bytes, SectionKind::kPages);
  for (size_t i = 0; i < pages.bytes / PageRecord::kBytes; ++i) {
    const size_t at = pages.offset + i * PageRecord::kBytes;
    auto record = GetRecord<PageRecord>(bytes->data() + at);
    if (!Inside(*bytes, record.offset, record.stored_bytes)) continue;
    record.checksum = hash(record.offset, record.stored_bytes);
    Overwrite(record, at, bytes);
  }
  const size_t end = DirectoryEnd(*bytes);
  for (size_t at = FileHeader::kBytes; at < end; at += SectionRecord::kBytes) {
    auto record = GetRecord<SectionRecord>(bytes->data() + at);
    if (!Inside(*bytes, record.offset, record.bytes)) continue;
    record.checksum = hash(record.offset, record.bytes);
    Overwrite(record, at, bytes);
  }
  if (end == 0) return;
  auto header = GetRecord<FileHeader>(bytes->data());
  std::vector<std::byte> checked(bytes->begin(), bytes->begin() + static_cast<ptrdiff_t>(end));
  checked.erase(checked.begin() + FileHeader::kBytes - 8, checked.begin() + FileHeader::kBytes);
  header.checksum = FileChecksum(checked);
  Overwrite(header, 0, bytes);
}

}  // namespace varve
