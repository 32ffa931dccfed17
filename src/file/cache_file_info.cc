#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "file/cache_file_reader.h"
#include "varve/cache_file.h"

namespace varve {
namespace {

PageState StateOf(const PageRecord& page) {
  if (page.IsPacked()) return PageState::kPacked;
  if (page.state == kStateFilling) return PageState::kFilling;
  return page.state == kStateFull ? PageState::kFull : PageState::kSealed;
}

void AddPages(const CacheFile& file, CacheFileInfo* info) {
  std::vector<uint32_t> uses(file.pages().size());
  for (const EntryRecord& entry : file.entries()) ++uses[entry.page];
  info->pages = file.pages().size();
  std::map<std::pair<std::string, PageState>, RungBytes> sums;
  for (size_t i = 0; i < file.pages().size(); ++i) {
    const PageRecord& page = file.pages()[i];
    if (uses[i] > 1) ++info->pages_shared;
    std::string rung(file.rungs()[page.key_rung]->name);
    if (page.key_rung != page.value_rung)
      rung += "/" + std::string(file.rungs()[page.value_rung]->name);
    RungBytes& sum = sums[{rung, StateOf(page)}];
    sum.rung = rung;
    sum.state = StateOf(page);
    ++sum.pages;
    sum.bytes += page.stored_bytes;
    info->page_bytes += page.stored_bytes;
  }
  for (const auto& [key, sum] : sums) info->rungs.push_back(sum);
}

void AddSequences(const CacheFile& file, CacheFileInfo* info) {
  const CacheShape& shape = file.shape();
  const uint64_t row_bytes =
      2 * static_cast<uint64_t>(shape.num_kv_heads) * (shape.key_dim + shape.value_dim);
  for (size_t i = 0; i < file.sequences().size(); ++i) {
    const SequenceRecord& record = file.sequences()[i];
    CacheFileInfo::Sequence sequence{record.next_position, record.num_tokens, 0,
                                     record.next_position + record.tokens_restarted};
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const TableRecord& table = file.table(i, layer);
      for (uint64_t at = 0; at < table.num_entries; ++at) {
        const EntryRecord& entry = file.entries()[table.first_entry + at];
        sequence.live_rows += std::popcount(entry.live[0]) + std::popcount(entry.live[1]);
      }
    }
    info->bytes_f16 += static_cast<uint64_t>(sequence.live_rows) * row_bytes;
    info->bytes_f16_seen += static_cast<uint64_t>(sequence.tokens_seen) *
                            static_cast<uint64_t>(shape.num_layers) * row_bytes;
    info->sequences.push_back(sequence);
  }
}

}  // namespace

Result<CacheFileInfo> ReadCacheFileInfo(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const CacheFile> opened, CacheFile::Open(path));
  const CacheFile& file = *opened;
  CacheFileInfo info;
  info.version = file.header().version;
  info.shape = file.shape();
  info.plan_text = file.plan_text();
  info.plan = file.plan();
  info.model_fingerprint = file.header().model_fingerprint;
  info.model_name = file.model_name();
  info.file_bytes = file.file_bytes();
  info.dictionaries = file.dictionaries().size();
  info.dictionary_bytes = file.dictionary_bytes();
  AddPages(file, &info);
  AddSequences(file, &info);
  return info;
}

Status VerifyCacheFile(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const CacheFile> file, CacheFile::Open(path));
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < file->pages().size(); ++i) {
    bytes.resize(file->pages()[i].raw_bytes);
    VARVE_RETURN_IF_ERROR(file->ReadPage(i, bytes.data()));
  }
  return Status();
}

}  // namespace varve
