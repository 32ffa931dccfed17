// What tests and the fuzzer of .varve files share: files as bytes, and correct checksums for bytes
// that were changed, so that the checks after the checksums are reached.

#ifndef VARVE_TESTS_CACHE_FILE_TESTING_H_
#define VARVE_TESTS_CACHE_FILE_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "file/cache_file_format.h"

namespace varve {

// The step of walks over all bytes of a file: 1, but more under a sanitizer, which makes each byte
// twenty times as slow.
#ifdef VARVE_SANITIZED
inline constexpr size_t kByteStride = 5;
#else
inline constexpr size_t kByteStride = 1;
#endif

std::vector<std::byte> ReadFileBytes(const std::string& path);  // empty if there is none
void WriteFileBytes(const std::string& path, const std::vector<std::byte>& bytes);

// Computes every checksum of the file again (dictionaries, pages, sections, header), as far as
// offsets and sizes lie inside the file.
void RepairChecksums(std::vector<std::byte>* bytes);

// Where a section begins and how many bytes it has; {0, 0} if there is none.
struct SectionPlace {
  size_t offset = 0;
  size_t bytes = 0;
};
SectionPlace FindSection(const std::vector<std::byte>& bytes, SectionKind kind);

// Reads, changes and writes back one record of a section, checksums included.
template <typename Record, typename Change>
std::vector<std::byte> WithRecord(std::vector<std::byte> bytes, SectionKind kind, size_t index,
                                  Change&& change) {
  const size_t at = FindSection(bytes, kind).offset + index * Record::kBytes;
  Record record = GetRecord<Record>(bytes.data() + at);
  change(record);
  std::vector<std::byte> changed;
  PutRecord(record, &changed);
  std::copy(changed.begin(), changed.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
  RepairChecksums(&bytes);
  return bytes;
}

}  // namespace varve

#endif  // VARVE_TESTS_CACHE_FILE_TESTING_H_
