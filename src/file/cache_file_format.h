// The records of a .varve file and the order of their fields: what docs/format/cache-file.md shows
// as byte tables. A record is described once, by Fields; writing and reading both follow it. All
// numbers are little-endian, whatever the machine.
//
// Nothing is checked here; cache_file_reader.h says what a file may hold.

#ifndef VARVE_FILE_CACHE_FILE_FORMAT_H_
#define VARVE_FILE_CACHE_FILE_FORMAT_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/align.h"
#include "kernels/content_hash.h"

namespace varve {

// Pages are stored as they are in memory.
static_assert(std::endian::native == std::endian::little);

inline constexpr std::array<char, 8> kCacheFileMagic = {'V', 'A', 'R', 'V', 'E', '\r', '\n', 26};
inline constexpr uint32_t kCacheFileVersion = 1;
inline constexpr uint32_t kCacheFileByteOrder = 0x01020304;
inline constexpr size_t kCacheFileAlignment = 4096;  // of raw payloads and the file
inline constexpr size_t kImageAlignment = 8;         // the same in an image, which nobody maps
inline constexpr size_t kSectionAlignment = 8;
inline constexpr size_t kPackedAlignment = 8;  // of packed payloads

// Low enough that nothing computed from positions overflows.
inline constexpr int64_t kMaxFilePosition = int64_t{1} << 40;
inline constexpr size_t kMaxModelNameBytes = 1024;

// Kinds of sections. A reader must refuse a kind that it does not know, unless kIgnorableSection is
// set in it. Numbers are never reused.
enum class SectionKind : uint32_t {
  kPlan = 1,            // the plan's canonical text
  kModel = 2,           // the model's name, for people
  kRungs = 3,           // RungRecord
  kSequences = 4,       // SequenceRecord
  kTokens = 5,          // int32
  kTables = 6,          // TableRecord [sequences][layers]
  kEntries = 7,         // EntryRecord
  kPages = 8,           // PageRecord
  kDictionaries = 9,    // DictionaryRecord; a file has both 9 and 10, or neither
  kDictionaryData = 10  // their bytes
};
inline constexpr uint32_t kIgnorableSection = 0x80000000;

// How the bytes of a page are stored. Numbers are never reused.
enum class PageEncoding : uint16_t {
  kRaw = 1,     // docs/format/pages.md
  kPacked = 2,  // the strips' ends, then the packed strips
};

// PageRecord::state.
inline constexpr uint16_t kStateFilling = 1;
inline constexpr uint16_t kStateFull = 2;
inline constexpr uint16_t kStateSealed = 3;

struct FileHeader {
  std::array<char, 8> magic = kCacheFileMagic;
  uint32_t version = kCacheFileVersion;
  uint32_t byte_order = kCacheFileByteOrder;
  uint32_t header_bytes = kBytes;
  uint32_t num_sections = 0;
  uint64_t file_bytes = 0;
  uint32_t num_layers = 0;
  uint32_t num_kv_heads = 0;
  uint32_t group_size = 0;
  uint32_t key_dim = 0;
  uint32_t value_dim = 0;
  uint32_t page_tokens = 0;
  uint64_t model_fingerprint = 0;  // 0: not said
  uint64_t payload_offset = 0;     // of the first page
  uint64_t num_sequences = 0;
  uint64_t num_pages = 0;
  uint64_t alignment = 0;  // of raw payloads and the file; 0: kCacheFileAlignment
  std::array<uint64_t, 3> reserved = {};
  uint64_t checksum = 0;  // of everything before it, and of the section directory after it

  size_t Alignment() const { return alignment == 0 ? kCacheFileAlignment : alignment; }

  static constexpr uint32_t kBytes = 128;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    for (auto& letter : r.magic) io(letter);
    io(r.version), io(r.byte_order), io(r.header_bytes), io(r.num_sections), io(r.file_bytes);
    io(r.num_layers), io(r.num_kv_heads), io(r.group_size), io(r.key_dim), io(r.value_dim);
    io(r.page_tokens), io(r.model_fingerprint), io(r.payload_offset), io(r.num_sequences);
    io(r.num_pages), io(r.alignment);
    for (auto& word : r.reserved) io(word);
    io(r.checksum);
  }
};

struct SectionRecord {
  uint32_t kind = 0;
  uint32_t record_bytes = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;

  static constexpr uint32_t kBytes = 32;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    io(r.kind), io(r.record_bytes), io(r.offset), io(r.bytes), io(r.checksum);
  }
};

struct RungRecord {
  std::array<char, 16> name = {};  // filled up with NUL
  uint64_t key_strip_bytes = 0;    // 0: cannot hold keys of this shape
  uint64_t value_strip_bytes = 0;
  uint64_t codebook_hash = 0;  // of a pq rung; 0 for others
  uint64_t reserved = 0;

  static constexpr uint32_t kBytes = 48;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    for (auto& letter : r.name) io(letter);
    io(r.key_strip_bytes), io(r.value_strip_bytes), io(r.codebook_hash), io(r.reserved);
  }
};

struct SequenceRecord {
  int64_t next_position = 0;
  uint64_t first_token = 0;  // index into the tokens
  uint64_t num_tokens = 0;
  uint32_t flags = 0;
  uint32_t tokens_restarted = 0;  // positions that folding has given up (fold_positions=restart)

  static constexpr uint32_t kPromptEnded = 1;  // flag: EndPrompt has been called
  static constexpr uint32_t kPromptOpen = 2;   // flag: a later prompt has begun and not ended
  static constexpr uint32_t kBytes = 32;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    io(r.next_position), io(r.first_token), io(r.num_tokens), io(r.flags);
    io(r.tokens_restarted);
  }
};

struct TableRecord {
  uint64_t first_entry = 0;
  uint64_t num_entries = 0;
  uint64_t plan_bytes = 0;  // of the policy's decision in force
  uint32_t flags = 0;
  // Of a later prompt that has not ended: its positions, up to next_position. All layers alike.
  uint32_t prompt_positions = 0;

  static constexpr uint32_t kPlanPending = 1;  // flag: a decision is made, not yet carried out
  static constexpr uint32_t kBytes = 32;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    io(r.first_entry), io(r.num_entries), io(r.plan_bytes), io(r.flags), io(r.prompt_positions);
  }
};

struct EntryRecord {
  uint64_t page = 0;  // index into the pages
  uint32_t rows = 0;
  int32_t stage = -1;
  int32_t wish = -1;
  uint32_t reserved = 0;
  std::array<uint64_t, 2> live = {};
  double bucket_sum = 0;
  double smooth = 0;
  float last = 0;
  float frozen = -1;
  std::array<float, 4> buckets = {};
  int32_t bucket_queries = 0;
  int32_t num_buckets = 0;

  static constexpr uint32_t kBytes = 88;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    io(r.page), io(r.rows), io(r.stage), io(r.wish), io(r.reserved);
    for (auto& word : r.live) io(word);
    io(r.bucket_sum), io(r.smooth), io(r.last), io(r.frozen);
    for (auto& bucket : r.buckets) io(bucket);
    io(r.bucket_queries), io(r.num_buckets);
  }
};

struct PageRecord {
  uint64_t offset = 0;        // of the payload
  uint64_t stored_bytes = 0;  // of the payload
  uint64_t checksum = 0;      // of the payload
  uint64_t raw_bytes = 0;     // of the page in memory
  int64_t first_position = 0;
  uint32_t layer = 0;
  uint16_t state = 0;
  uint16_t encoding = static_cast<uint16_t>(PageEncoding::kRaw);
  uint32_t rows = 0;
  uint32_t tokens_per_row = 1;
  uint32_t key_rung = 0;  // index into the rungs
  uint32_t value_rung = 0;
  uint32_t successor = 0;  // index into the pages + 1; 0: none
  uint32_t reserved = 0;

  bool IsPacked() const { return encoding == static_cast<uint16_t>(PageEncoding::kPacked); }
  size_t Alignment(const FileHeader& header) const {
    return IsPacked() ? kPackedAlignment : header.Alignment();
  }

  static constexpr uint32_t kBytes = 72;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    io(r.offset), io(r.stored_bytes), io(r.checksum), io(r.raw_bytes), io(r.first_position);
    io(r.layer), io(r.state), io(r.encoding), io(r.rows), io(r.tokens_per_row), io(r.key_rung);
    io(r.value_rung), io(r.successor), io(r.reserved);
  }
};

struct DictionaryRecord {
  uint64_t hash = 0;      // by which packed strips name it
  uint64_t offset = 0;    // in section dictionary data
  uint64_t bytes = 0;     // docs/format/packed.md
  uint64_t checksum = 0;  // of those bytes

  static constexpr uint32_t kBytes = 32;
  template <typename Io, typename Record>
  static void Fields(Io& io, Record& r) {
    io(r.hash), io(r.offset), io(r.bytes), io(r.checksum);
  }
};

// A dictionary may extend another, which may extend a third: at most this many in a chain.
inline constexpr size_t kMaxDictionaryChain = 64;

namespace cache_file_internal {

template <typename T>
using BitsOf =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

struct Put {
  std::vector<std::byte>* out;
  template <typename T>
  void operator()(const T& value) {
    auto bits = std::bit_cast<BitsOf<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i)
      out->push_back(static_cast<std::byte>(static_cast<uint64_t>(bits) >> (8 * i)));
  }
};

struct Get {
  const std::byte* in;
  template <typename T>
  void operator()(T& value) {
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= static_cast<uint64_t>(*in++) << (8 * i);
    value = std::bit_cast<T>(static_cast<BitsOf<T>>(bits));
  }
};

}  // namespace cache_file_internal

// Appends Record::kBytes bytes.
template <typename Record>
void PutRecord(const Record& record, std::vector<std::byte>* out) {
  cache_file_internal::Put put{out};
  Record::Fields(put, record);
}

// Reads Record::kBytes bytes.
template <typename Record>
Record GetRecord(const std::byte* in) {
  Record record;
  cache_file_internal::Get get{in};
  Record::Fields(get, record);
  return record;
}

// XXH3-64: of pages, sections and header.
inline uint64_t FileChecksum(std::span<const std::byte> bytes) {
  return HashBytes(bytes.data(), bytes.size());
}

}  // namespace varve

#endif  // VARVE_FILE_CACHE_FILE_FORMAT_H_
