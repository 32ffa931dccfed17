// CacheFile: a .varve file, opened and checked; the source of the pages that a cache has loaded
// from it.
//
// Open reads header, sections and tables, checks their checksums and then every field, so that
// whoever uses the records need not: indices are in range, rungs exist and are those that the plan
// gives the entry's stage, live rows exist, tables ascend, sizes are what shape and rung make them.
// Dictionaries of packed pages are parsed. Payloads are not touched; Read copies one and checks it.
// Whatever the bytes are, the answer is a Status: kInvalidArgument if it is no such file,
// kUnimplemented for a version or a part that this build does not read, kDataLoss if the file
// contradicts itself; messages begin with its name.
//
// Pages of a file that is shortened while it is open fail their checksums (mapped_file.h).
// Immutable after Open; any number of threads may read.

#ifndef VARVE_FILE_CACHE_FILE_READER_H_
#define VARVE_FILE_CACHE_FILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "file/cache_file_format.h"
#include "pages/page.h"
#include "plan/resolved_plan.h"
#include "varve/cache.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

class CacheFile final : public PageSource {
 public:
  static Result<std::shared_ptr<const CacheFile>> Open(const std::string& path);
  // Over memory that outlives the object. `name` is for messages.
  static Result<std::shared_ptr<const CacheFile>> FromMemory(std::span<const std::byte> bytes,
                                                             std::string name);

  const std::string& name() const { return name_; }
  uint64_t file_bytes() const { return bytes_.size(); }
  const FileHeader& header() const { return header_; }
  const CacheShape& shape() const { return shape_; }
  const std::string& plan_text() const { return plan_text_; }
  const Plan& plan() const { return plan_; }
  const std::vector<LayerForm>& layer_plans() const { return layer_plans_; }
  const std::string& model_name() const { return model_name_; }

  // The rungs of its pages, and the hash of the codebook that each had; 0 for those without.
  const std::vector<const RungDescriptor*>& rungs() const { return rungs_; }
  const std::vector<uint64_t>& codebook_hashes() const { return codebook_hashes_; }
  const std::vector<SequenceRecord>& sequences() const { return sequences_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // [sequences][layers]
  const std::vector<TableRecord>& tables() const { return tables_; }
  const TableRecord& table(size_t sequence, int layer) const {
    return tables_[sequence * static_cast<size_t>(shape_.num_layers) + static_cast<size_t>(layer)];
  }
  const std::vector<EntryRecord>& entries() const { return entries_; }
  const std::vector<PageRecord>& pages() const { return pages_; }

  // The payload of page `index`, checked, as the page's bytes in memory (raw_bytes of its record).
  Status ReadPage(uint64_t index, std::byte* to) const;
  Status Read(uint64_t index, const Page& page, std::byte* to) const override;
  // The payload of a packed page, checked as far as that goes without unpacking it; strips of
  // rungs with scales are unpacked for a look at them. (The content hash of a strip is compared
  // whenever it is unpacked.)
  Status ReadPackedPage(uint64_t index, PackedStrips* to) const;
  Status ReadPacked(uint64_t index, const Page& page, PackedStrips* to) const override;
  // In the file's order: what one extends comes before it.
  const std::vector<std::shared_ptr<const store::Dictionary>>& dictionaries() const {
    return dictionaries_;
  }
  uint64_t dictionary_bytes() const { return dictionary_bytes_; }  // in the file

 private:
  struct Section {
    SectionRecord record;
    std::vector<std::byte> bytes;  // a copy: what was checked is what is used
  };

  CacheFile() = default;
  Status Parse();
  Status ParseHeader();
  Status CheckShapeFields();
  Status ParseSections();
  Status CheckPadding(uint64_t begin, uint64_t end, const char* where) const;
  Status ParsePlanSection();
  Status ParseRungs();
  Status ParseSequences();
  Status ParseTables();
  Status ParsePages();
  Status ParseDictionaries();
  Status AddDictionary(size_t index, const DictionaryRecord& record);
  Status CheckPage(size_t index) const;
  Status CheckStoredBytes(size_t index) const;
  Status CheckPackedStrip(uint64_t index, int head, Part part, std::span<const std::byte> strip,
                          std::shared_ptr<const store::Dictionary>* dictionary) const;
  // Page `index` is packed: its raw bytes, every check made.
  Status InflatePage(uint64_t index, std::byte* to) const;
  Status CheckTable(size_t sequence, int layer, std::vector<bool>* used) const;
  Status CheckEntry(size_t index, int layer) const;
  Status CheckScore(size_t index) const;
  template <typename Record>
  std::vector<Record> Records(SectionKind kind) const {
    const std::vector<std::byte>& bytes = section(kind).bytes;
    std::vector<Record> records;
    records.reserve(bytes.size() / Record::kBytes);
    for (size_t at = 0; at < bytes.size(); at += Record::kBytes)
      records.push_back(GetRecord<Record>(bytes.data() + at));
    return records;
  }
  const Section& section(SectionKind kind) const { return sections_[static_cast<size_t>(kind)]; }
  // Names the file in front.
  template <typename... Args>
  Status Bad(fmt::format_string<const Args&...> format, const Args&... args) const {
    return Status(StatusCode::kDataLoss, name_ + ": " + fmt::format(format, args...));
  }
  // Names the page, too.
  Status BadPage(uint64_t index, const std::string& what) const;

  std::string name_;
  std::unique_ptr<const MappedFile> mapping_;  // null over memory
  std::span<const std::byte> bytes_;
  FileHeader header_;
  CacheShape shape_;
  std::vector<Section> sections_;  // by kind; empty once parsed
  std::string plan_text_;
  Plan plan_;
  std::vector<LayerForm> layer_plans_;
  std::string model_name_;
  std::vector<const RungDescriptor*> rungs_;
  std::vector<uint64_t> codebook_hashes_;
  std::vector<SequenceRecord> sequences_;
  std::vector<int32_t> tokens_;
  std::vector<TableRecord> tables_;
  std::vector<EntryRecord> entries_;
  std::vector<PageRecord> pages_;
  std::vector<std::shared_ptr<const store::Dictionary>> dictionaries_;
  std::unordered_map<uint64_t, size_t> dictionary_index_;  // by hash
  uint64_t dictionary_bytes_ = 0;
  // Pages with the same dictionaries share the list of them.
  mutable std::mutex lists_mutex_;
  mutable std::map<std::vector<uint64_t>, std::weak_ptr<const PackDictionaries>> lists_;
};

}  // namespace varve

#endif  // VARVE_FILE_CACHE_FILE_READER_H_
