#include "file/cache_file_writer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "file/cache_file_format.h"
#include "file/cache_file_packed.h"
#include "pages/page_store.h"
#include "pages/strip_reader.h"

namespace varve {
namespace {

uint16_t StateNumber(PageState state) {
  switch (state) {
    case PageState::kFilling:
      return kStateFilling;
    case PageState::kFull:
      return kStateFull;
    default:
      return kStateSealed;
  }
}

EntryRecord MakeEntry(const TableEntry& entry, uint64_t page) {
  EntryRecord record;
  record.page = page;
  record.rows = static_cast<uint32_t>(entry.rows);
  record.stage = entry.stage;
  record.wish = entry.wish;
  record.live = entry.live.words();
  const PageScore::State& score = entry.score.state();
  record.bucket_sum = score.bucket_sum;
  record.smooth = score.smooth;
  record.last = score.last;
  record.frozen = score.frozen;
  record.buckets = score.buckets;
  record.bucket_queries = score.bucket_queries;
  record.num_buckets = score.num_buckets;
  return record;
}

// What AtomicFile is, in memory.
struct MemoryFile {
  std::vector<std::byte> bytes;

  Status Append(std::span<const std::byte> more) {
    AppendBytes(bytes, more);
    return Status();
  }
  Status Pad(uint64_t alignment) {
    bytes.resize(AlignUp(bytes.size(), alignment));
    return Status();
  }
};

class Writer {
 public:
  // `alignment` as the header has it.
  Writer(const CacheFileContent& content, uint64_t alignment)
      : content_(content), header_(MakeHeader(content, alignment)) {}

  // Everything but the payloads is known after this.
  Result<std::vector<std::byte>> MakeHead() {
    CollectPages();
    VARVE_RETURN_IF_ERROR(DescribePages());
    CollectTables();
    return Head();
  }

  // `to` has the head; it needs Append and Pad.
  template <typename File>
  Status AppendPages(File* to) {
    for (size_t i = 0; i < pages_.size(); ++i) {
      VARVE_ASSIGN_OR_RETURN(std::span<const std::byte> image, Image(*pages_[i]));
      VARVE_RETURN_IF_ERROR(to->Pad(records_[i].Alignment(header_)));
      VARVE_RETURN_IF_ERROR(to->Append(image));
    }
    return to->Pad(header_.Alignment());
  }

  // Known once the head is made.
  uint64_t file_bytes() const { return header_.file_bytes; }

 private:
  template <typename Record>
  static void Put(const Record& record, std::vector<std::byte>* out) {
    PutRecord(record, out);
  }

  void CollectPages() {
    for (int layer = 0; layer < content_.shape.num_layers; ++layer) {
      for (const CacheFileContent::Item& item : content_.sequences) {
        for (const TableEntry& entry :
             item.sequence->layers[static_cast<size_t>(layer)].entries()) {
          const Page* page = entry.page.get();
          if (page_index_.emplace(page, pages_.size()).second) pages_.push_back(page);
        }
      }
    }
  }

  uint32_t RungIndex(const Rung* rung) {
    const auto found = std::find(rungs_.begin(), rungs_.end(), rung);
    if (found != rungs_.end()) return static_cast<uint32_t>(found - rungs_.begin());
    rungs_.push_back(rung);
    return static_cast<uint32_t>(rungs_.size() - 1);
  }

  // The page's bytes as the file has them; valid until the next call.
  Result<std::span<const std::byte>> Image(const Page& page) {
    if (const auto alone = alone_.find(&page); alone != alone_.end())
      return std::span<const std::byte>(alone->second.bytes);
    if (page.IsPacked()) {
      VARVE_RETURN_IF_ERROR(PackedImage(page, &buffer_, nullptr));
      return std::span<const std::byte>(buffer_);
    }
    if (const UnreadBytes* unread = page.unread()) {
      buffer_.resize(page.bytes);
      VARVE_RETURN_IF_ERROR(unread->source->Read(unread->index, page, buffer_.data()));
      return std::span<const std::byte>(buffer_);
    }
    const bool open = page.rung(Part::kKey).can_append() || page.rung(Part::kValue).can_append();
    const bool whole = page.rows == content_.shape.page_tokens || !open;
    if (DeviceBytes* device = page.store->device()) {
      buffer_.resize(page.bytes);
      VARVE_RETURN_IF_ERROR(device->ToHost(page.raw(), page.bytes, buffer_.data()));
    } else {
      if (whole) return std::span<const std::byte>(page.raw(), page.bytes);
      buffer_.assign(page.raw(), page.raw() + page.bytes);
    }
    if (whole) return std::span<const std::byte>(buffer_);
    std::byte* strip = buffer_.data();
    for (int head = 0; head < content_.shape.num_kv_heads; ++head) {
      for (const Part part : kParts) {
        ClearRest(page, page.rung(part), part, head, strip);
        strip += page.part(part).strip_bytes;
      }
    }
    return std::span<const std::byte>(buffer_);
  }

  // Zeros in the rows that were never written. Block rungs have them already.
  void ClearRest(const Page& page, const Rung& rung, Part part, int head, std::byte* strip) const {
    if (!rung.can_append()) return;
    const CacheShape& shape = content_.shape;
    const StripShape strip_shape = {
        page.layer, head, part == Part::kKey ? shape.key_dim : shape.value_dim, shape.page_tokens};
    const std::vector<float> zeros(static_cast<size_t>(strip_shape.dim));
    rung.WriteRows(part, strip_shape, strip, page.rows, shape.page_tokens - page.rows, zeros.data(),
                   0);
  }

  // Adds the dictionaries that the page needs to the file. A page that has been damaged in memory
  // is not written.
  Status CheckPacked(const Page& page) {
    PackedStrips strips;
    VARVE_RETURN_IF_ERROR(PackedImage(page, &buffer_, &strips));
    if (header_.alignment != 0 && strips.dictionaries != nullptr) return PackAlone(page);
    VARVE_RETURN_IF_ERROR(dictionaries_.Add(strips));
    if (page.unread() != nullptr) return Status();
    buffer_.resize(page.bytes);
    return RestorePage(content_.shape, page, *page.packed()->packed, buffer_.data());
  }

  // An image holds a page or a few: the dictionaries, which hundreds of pages share, could be
  // larger than they are. So their strips are packed again without one, or stay raw where that is
  // smaller.
  Status PackAlone(const Page& page) {
    std::vector<std::byte> raw(page.bytes);
    if (const UnreadBytes* unread = page.unread()) {
      VARVE_RETURN_IF_ERROR(unread->source->Read(unread->index, page, raw.data()));
    } else {
      VARVE_RETURN_IF_ERROR(RestorePage(content_.shape, page, *page.packed()->packed, raw.data()));
    }
    PackedStrips strips;
    const std::byte* from = raw.data();
    for (int head = 0; head < content_.shape.num_kv_heads; ++head) {
      for (const Part part : kParts) {
        const int dim = part == Part::kKey ? content_.shape.key_dim : content_.shape.value_dim;
        const store::PartView view = {
            PartShapeOf(page.rung(part), part, dim, content_.shape.page_tokens), from, 0,
            page.first_position};
        VARVE_ASSIGN_OR_RETURN(const std::vector<std::byte> packed, store::Pack(view, nullptr));
        AppendBytes(strips.bytes, packed);
        strips.ends.push_back(static_cast<uint32_t>(strips.bytes.size()));
        from += page.part(part).strip_bytes;
      }
    }
    Alone& alone = alone_[&page];
    alone.packed = strips.bytes.size() + PackedEndsBytes(content_.shape.num_kv_heads) < raw.size();
    if (!alone.packed) {
      alone.bytes = std::move(raw);
      return Status();
    }
    PackedPayload(strips, &alone.bytes);
    return Status();
  }

  Status DescribePages() {
    for (const Page* page : pages_) {
      if (page->IsPacked()) VARVE_RETURN_IF_ERROR(CheckPacked(*page));
      VARVE_ASSIGN_OR_RETURN(std::span<const std::byte> image, Image(*page));
      for (const auto& [rung, strip_bytes, offset] : page->parts) {
        if (rung->name().size() <= RungRecord().name.size()) continue;
        return Unimplemented(fmt::format("rung {}: its name has more than {} bytes", rung->name(),
                                         RungRecord().name.size()));
      }
      PageRecord& record = records_.emplace_back();
      record.stored_bytes = image.size();
      const auto alone = alone_.find(page);
      if (alone != alone_.end() ? alone->second.packed : page->IsPacked())
        record.encoding = static_cast<uint16_t>(PageEncoding::kPacked);
      record.raw_bytes = page->bytes;
      record.checksum = FileChecksum(image);
      record.first_position = page->first_position;
      record.layer = static_cast<uint32_t>(page->layer);
      record.state = StateNumber(page->life);
      record.rows = static_cast<uint32_t>(page->rows);
      record.tokens_per_row = static_cast<uint32_t>(page->tokens_per_row);
      record.key_rung = RungIndex(page->part(Part::kKey).rung);
      record.value_rung = RungIndex(page->part(Part::kValue).rung);
      const auto successor = page_index_.find(page->successor);
      if (page->successor != nullptr && successor != page_index_.end() &&
          page->successor->rows == page->rows) {
        record.successor = static_cast<uint32_t>(successor->second + 1);
      }
    }
    return Status();
  }

  void CollectTables() {
    for (const CacheFileContent::Item& item : content_.sequences) {
      const Sequence& sequence = *item.sequence;
      SequenceRecord record;
      record.next_position = sequence.next_position;
      record.first_token = num_tokens_;
      record.num_tokens = item.tokens.size();
      // The first prompt is open until it has ended; a later one matters where it will be folded.
      const bool later_prompt = sequence.prompt_ended &&
                                std::any_of(sequence.layers.begin(), sequence.layers.end(),
                                            [](const LayerTable& table) { return table.held(); });
      record.flags = (sequence.prompt_ended ? SequenceRecord::kPromptEnded : 0) |
                     (later_prompt ? SequenceRecord::kPromptOpen : 0);
      record.tokens_restarted = static_cast<uint32_t>(sequence.tokens_restarted());
      Put(record, &sequence_bytes_);
      num_tokens_ += item.tokens.size();
      cache_file_internal::Put put{&token_bytes_};
      for (const int32_t token : item.tokens) put(token);
      for (const LayerTable& table : sequence.layers) {
        TableRecord table_record;
        table_record.first_entry = num_entries_;
        table_record.num_entries = table.size();
        table_record.plan_bytes = table.decision_bytes;
        // The decision is a function of the sequence: it is enough to say that there is one.
        table_record.flags =
            table.PendingFits(sequence.next_position) ? TableRecord::kPlanPending : 0;
        if (later_prompt) {
          table_record.prompt_positions =
              static_cast<uint32_t>(sequence.next_position - sequence.prompt_begin);
        }
        Put(table_record, &table_bytes_);
        num_entries_ += table.size();
        for (const TableEntry& entry : table.entries())
          Put(MakeEntry(entry, page_index_.at(entry.page.get())), &entry_bytes_);
      }
    }
  }

  std::vector<std::byte> RungBytes() const {
    std::vector<std::byte> bytes;
    const StripShape key_shape = {0, 0, content_.shape.key_dim, content_.shape.page_tokens};
    const StripShape value_shape = {0, 0, content_.shape.value_dim, content_.shape.page_tokens};
    for (const Rung* rung : rungs_) {
      RungRecord record;
      std::copy(rung->name().begin(), rung->name().end(), record.name.begin());
      if (rung->CheckDim(key_shape.dim).ok())
        record.key_strip_bytes = rung->StripBytes(Part::kKey, key_shape);
      if (rung->CheckDim(value_shape.dim).ok())
        record.value_strip_bytes = rung->StripBytes(Part::kValue, value_shape);
      record.codebook_hash = rung->codebook_hash();
      Put(record, &bytes);
    }
    return bytes;
  }

  // Header, directory and sections, padded to where the pages begin.
  std::vector<std::byte> Head() {
    const auto text = [](const std::string& from) {
      const auto* begin = reinterpret_cast<const std::byte*>(from.data());
      return std::vector<std::byte>(begin, begin + from.size());
    };
    struct Section {
      SectionKind kind;
      uint32_t record_bytes;
      std::vector<std::byte> bytes;
    };
    std::vector<Section> sections;
    sections.push_back({SectionKind::kPlan, 1, text(content_.plan_text)});
    sections.push_back({SectionKind::kModel, 1, text(content_.model_name)});
    sections.push_back({SectionKind::kRungs, RungRecord::kBytes, RungBytes()});
    sections.push_back(
        {SectionKind::kSequences, SequenceRecord::kBytes, std::move(sequence_bytes_)});
    sections.push_back({SectionKind::kTokens, 4, std::move(token_bytes_)});
    sections.push_back({SectionKind::kTables, TableRecord::kBytes, std::move(table_bytes_)});
    sections.push_back({SectionKind::kEntries, EntryRecord::kBytes, std::move(entry_bytes_)});
    if (!dictionaries_.empty()) {
      sections.push_back(
          {SectionKind::kDictionaries, DictionaryRecord::kBytes, dictionaries_.TakeRecords()});
      sections.push_back({SectionKind::kDictionaryData, 1, dictionaries_.TakeData()});
    }
    sections.push_back({SectionKind::kPages, PageRecord::kBytes, {}});

    // The sizes alone tell where the pages go; their records are the last section.
    uint64_t end = FileHeader::kBytes + SectionRecord::kBytes * sections.size();
    for (const Section& section : sections)
      end = AlignUp(end, kSectionAlignment) + section.bytes.size();
    end += uint64_t{PageRecord::kBytes} * records_.size();
    header_.num_sections = static_cast<uint32_t>(sections.size());
    header_.num_pages = pages_.size();
    header_.payload_offset = AlignUp(end, header_.Alignment());
    uint64_t offset = header_.payload_offset;
    for (PageRecord& record : records_) {
      record.offset = AlignUp(offset, record.Alignment(header_));
      offset = record.offset + record.stored_bytes;
      Put(record, &sections.back().bytes);
    }
    header_.file_bytes = AlignUp(offset, header_.Alignment());

    std::vector<std::byte> directory;
    std::vector<std::byte> body;
    const uint64_t body_offset = FileHeader::kBytes + SectionRecord::kBytes * sections.size();
    for (const Section& section : sections) {
      body.resize(AlignUp(body_offset + body.size(), kSectionAlignment) - body_offset);
      Put(SectionRecord{static_cast<uint32_t>(section.kind), section.record_bytes,
                        body_offset + body.size(), section.bytes.size(),
                        FileChecksum(section.bytes)},
          &directory);
      body.insert(body.end(), section.bytes.begin(), section.bytes.end());
    }
    body.resize(header_.payload_offset - body_offset);
    return Joined(header_, directory, body);
  }

  static FileHeader MakeHeader(const CacheFileContent& content, uint64_t alignment) {
    FileHeader header;
    const CacheShape& shape = content.shape;
    header.alignment = alignment;
    header.num_layers = static_cast<uint32_t>(shape.num_layers);
    header.num_kv_heads = static_cast<uint32_t>(shape.num_kv_heads);
    header.group_size = static_cast<uint32_t>(shape.group_size);
    header.key_dim = static_cast<uint32_t>(shape.key_dim);
    header.value_dim = static_cast<uint32_t>(shape.value_dim);
    header.page_tokens = static_cast<uint32_t>(shape.page_tokens);
    header.model_fingerprint = content.model_fingerprint;
    header.num_sequences = content.sequences.size();
    return header;
  }

  static std::vector<std::byte> Joined(FileHeader header, const std::vector<std::byte>& directory,
                                       const std::vector<std::byte>& body) {
    std::vector<std::byte> checked;
    Put(header, &checked);
    checked.resize(FileHeader::kBytes - 8);
    checked.insert(checked.end(), directory.begin(), directory.end());
    header.checksum = FileChecksum(checked);
    std::vector<std::byte> head;
    head.reserve(FileHeader::kBytes + directory.size() + body.size());
    Put(header, &head);
    head.insert(head.end(), directory.begin(), directory.end());
    head.insert(head.end(), body.begin(), body.end());
    return head;
  }

  // A packed page of an image, without dictionaries.
  struct Alone {
    std::vector<std::byte> bytes;
    bool packed = false;  // or raw
  };

  const CacheFileContent& content_;
  FileHeader header_;
  std::unordered_map<const Page*, Alone> alone_;
  std::vector<const Page*> pages_;  // in the file's order
  std::unordered_map<const Page*, uint64_t> page_index_;
  std::vector<PageRecord> records_;  // as pages_
  std::vector<const Rung*> rungs_;
  std::vector<std::byte> sequence_bytes_, token_bytes_, table_bytes_, entry_bytes_;
  DictionaryWriter dictionaries_;
  uint64_t num_tokens_ = 0;
  uint64_t num_entries_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

Status WriteCacheFile(const std::string& path, const CacheFileContent& content, FileOps* ops) {
  Writer writer(content, 0);
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::byte> head, writer.MakeHead());
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, ops));
  VARVE_RETURN_IF_ERROR(file->Append(head));
  VARVE_RETURN_IF_ERROR(writer.AppendPages(file.get()));
  return file->Commit();
}

Result<std::vector<std::byte>> MakeCacheImage(const CacheFileContent& content) {
  Writer writer(content, kImageAlignment);
  MemoryFile file;
  VARVE_ASSIGN_OR_RETURN(file.bytes, writer.MakeHead());
  file.bytes.reserve(writer.file_bytes());
  VARVE_RETURN_IF_ERROR(writer.AppendPages(&file));
  return std::move(file.bytes);
}

}  // namespace varve
