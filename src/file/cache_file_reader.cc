#include "file/cache_file_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace varve {
namespace {

constexpr uint32_t kMaxSections = 64;
constexpr uint32_t kFirstKind = static_cast<uint32_t>(SectionKind::kPlan);
constexpr uint32_t kLastKind = static_cast<uint32_t>(SectionKind::kDictionaryData);

constexpr const char* kSectionNames[] = {"",          "plan",         "model",          "rungs",
                                         "sequences", "tokens",       "tables",         "entries",
                                         "pages",     "dictionaries", "dictionary data"};

// Record sizes of this version, by kind.
constexpr uint32_t kRecordBytes[] = {0,
                                     1,
                                     1,
                                     RungRecord::kBytes,
                                     SequenceRecord::kBytes,
                                     4,
                                     TableRecord::kBytes,
                                     EntryRecord::kBytes,
                                     PageRecord::kBytes,
                                     DictionaryRecord::kBytes,
                                     1};
// Kinds from this one on may be missing.
constexpr uint32_t kFirstOptionalKind = static_cast<uint32_t>(SectionKind::kDictionaries);

}  // namespace

Result<std::shared_ptr<const CacheFile>> CacheFile::Open(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<const MappedFile> mapping, MappedFile::Open(path));
  std::shared_ptr<CacheFile> file(new CacheFile);
  file->name_ = path;
  file->mapping_ = std::move(mapping);
  file->bytes_ = file->mapping_->bytes();
  VARVE_RETURN_IF_ERROR(file->Parse());
  return std::shared_ptr<const CacheFile>(std::move(file));
}

Result<std::shared_ptr<const CacheFile>> CacheFile::FromMemory(std::span<const std::byte> bytes,
                                                               std::string name) {
  std::shared_ptr<CacheFile> file(new CacheFile);
  file->name_ = std::move(name);
  file->bytes_ = bytes;
  VARVE_RETURN_IF_ERROR(file->Parse());
  return std::shared_ptr<const CacheFile>(std::move(file));
}

Status CacheFile::Parse() {
  VARVE_RETURN_IF_ERROR(ParseHeader());
  VARVE_RETURN_IF_ERROR(CheckShapeFields());
  VARVE_RETURN_IF_ERROR(ParseSections());
  VARVE_RETURN_IF_ERROR(ParsePlanSection());
  VARVE_RETURN_IF_ERROR(ParseRungs());
  VARVE_RETURN_IF_ERROR(ParseSequences());
  VARVE_RETURN_IF_ERROR(ParseDictionaries());
  VARVE_RETURN_IF_ERROR(ParsePages());
  VARVE_RETURN_IF_ERROR(ParseTables());
  sections_.clear();
  sections_.shrink_to_fit();
  return Status();
}

Status CacheFile::ParseHeader() {
  if (bytes_.size() < kCacheFileMagic.size() ||
      std::memcmp(bytes_.data(), kCacheFileMagic.data(), kCacheFileMagic.size()) != 0) {
    return InvalidArgument(fmt::format("{}: is not a .varve file", name_));
  }
  if (bytes_.size() < FileHeader::kBytes)
    return Bad("size {} < {}, a header", bytes_.size(), FileHeader::kBytes);
  header_ = GetRecord<FileHeader>(bytes_.data());
  if (header_.byte_order != kCacheFileByteOrder)
    return Bad("byte_order {:#010x} is not {:#010x}", header_.byte_order, kCacheFileByteOrder);
  if (header_.version != kCacheFileVersion) {
    return Unimplemented(fmt::format("{}: version {}; this build reads version {}", name_,
                                     header_.version, kCacheFileVersion));
  }
  if (header_.header_bytes != FileHeader::kBytes)
    return Bad("header_bytes {} is not {}", header_.header_bytes, FileHeader::kBytes);
  if (header_.num_sections > kMaxSections)
    return Bad("num_sections {} > {}", header_.num_sections, kMaxSections);
  const size_t end = FileHeader::kBytes + size_t{SectionRecord::kBytes} * header_.num_sections;
  if (bytes_.size() < end) return Bad("size {} < {}, header and directory", bytes_.size(), end);
  std::vector<std::byte> checked(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(end));
  checked.erase(checked.begin() + FileHeader::kBytes - 8, checked.begin() + FileHeader::kBytes);
  const uint64_t checksum = FileChecksum(checked);
  if (checksum != header_.checksum)
    return Bad("header checksum {:#018x} is not {:#018x}", header_.checksum, checksum);
  if (header_.file_bytes != bytes_.size())
    return Bad("file_bytes {} is not the size of the file, {}", header_.file_bytes, bytes_.size());
  if (header_.alignment != 0 && header_.alignment != kImageAlignment)
    return Bad("alignment {} is not 0 or {}", header_.alignment, kImageAlignment);
  if (header_.reserved != FileHeader().reserved)
    return Bad("a reserved field of the header is not 0");
  return Status();
}

Status CacheFile::CheckShapeFields() {
  const auto check = [this](const char* field, uint32_t value, uint32_t lowest, uint32_t highest) {
    if (value >= lowest && value <= highest) return Status();
    return Bad("{} {} is outside {} … {}", field, value, lowest, highest);
  };
  VARVE_RETURN_IF_ERROR(check("num_layers", header_.num_layers, 1, 1024));
  VARVE_RETURN_IF_ERROR(check("num_kv_heads", header_.num_kv_heads, 1, 1024));
  VARVE_RETURN_IF_ERROR(check("group_size", header_.group_size, 1, 64));
  VARVE_RETURN_IF_ERROR(check("key_dim", header_.key_dim, 16, kMaxDim));
  VARVE_RETURN_IF_ERROR(check("value_dim", header_.value_dim, 16, kMaxDim));
  const uint32_t page = header_.page_tokens;
  if (page != 16 && page != 32 && page != 64 && page != 128)
    return Bad("page_tokens {} is not 16, 32, 64 or 128", page);
  shape_ = {static_cast<int>(header_.num_layers), static_cast<int>(header_.num_kv_heads),
            static_cast<int>(header_.group_size), static_cast<int>(header_.key_dim),
            static_cast<int>(header_.value_dim),  static_cast<int>(page)};
  return Status();
}

Status CacheFile::CheckPadding(uint64_t begin, uint64_t end, const char* where) const {
  for (uint64_t at = begin; at < end; ++at) {
    if (bytes_[at] != std::byte{0}) return Bad("{}: the padding at byte {} is not 0", where, at);
  }
  return Status();
}

// Sections lie one after the other, each at the next multiple of 8, and then the pages.
Status CacheFile::ParseSections() {
  sections_.resize(kLastKind + 1);
  std::vector<bool> seen(kLastKind + 1);
  uint64_t end = FileHeader::kBytes + uint64_t{SectionRecord::kBytes} * header_.num_sections;
  for (uint32_t i = 0; i < header_.num_sections; ++i) {
    const auto record = GetRecord<SectionRecord>(bytes_.data() + FileHeader::kBytes +
                                                 size_t{i} * SectionRecord::kBytes);
    const uint64_t expected = AlignUp(end, kSectionAlignment);
    if (record.offset != expected || expected > bytes_.size())
      return Bad("section {}: offset {} is not {}", i, record.offset, expected);
    if (record.bytes > bytes_.size() - record.offset) {
      return Bad("section {}: {} bytes at {} > the file's {}", i, record.bytes, record.offset,
                 bytes_.size());
    }
    VARVE_RETURN_IF_ERROR(CheckPadding(end, record.offset, "sections"));
    end = record.offset + record.bytes;
    const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(record.offset);
    Section section{record, {begin, begin + static_cast<ptrdiff_t>(record.bytes)}};
    const uint64_t checksum = FileChecksum(section.bytes);
    if (checksum != record.checksum) {
      return Bad("section {} (kind {}): checksum {:#018x} is not {:#018x}", i, record.kind,
                 record.checksum, checksum);
    }
    if ((record.kind & kIgnorableSection) != 0) continue;
    if (record.kind < kFirstKind || record.kind > kLastKind) {
      return Unimplemented(
          fmt::format("{}: section {}: kind {} is not known to this build", name_, i, record.kind));
    }
    const char* name = kSectionNames[record.kind];
    if (seen[record.kind]) return Bad("section {}: a second one of kind {}", i, name);
    seen[record.kind] = true;
    if (record.record_bytes != kRecordBytes[record.kind]) {
      return Bad("section {}: record_bytes {} is not {}", name, record.record_bytes,
                 kRecordBytes[record.kind]);
    }
    if (record.bytes % record.record_bytes != 0) {
      return Bad("section {}: {} bytes are no multiple of {}", name, record.bytes,
                 record.record_bytes);
    }
    sections_[record.kind] = std::move(section);
  }
  for (uint32_t kind = kFirstKind; kind < kFirstOptionalKind; ++kind) {
    if (!seen[kind]) return Bad("section {}: missing", kSectionNames[kind]);
  }
  const uint64_t payload = AlignUp(end, header_.Alignment());
  if (header_.payload_offset != payload || payload > bytes_.size())
    return Bad("payload_offset {} is not {}", header_.payload_offset, payload);
  return CheckPadding(end, payload, "sections");
}

Status CacheFile::ParsePlanSection() {
  const auto text = [this](SectionKind kind) {
    const std::vector<std::byte>& bytes = section(kind).bytes;
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  model_name_ = text(SectionKind::kModel);
  if (model_name_.size() > kMaxModelNameBytes)
    return Bad("section model: {} bytes > {}", model_name_.size(), kMaxModelNameBytes);
  plan_text_ = text(SectionKind::kPlan);
  Result<Plan> plan = ParsePlan(plan_text_);
  if (!plan.ok()) return Bad("section plan: {}", plan.status().message());
  // A file must not choose where the program that loads it writes.
  if (plan->settings.spill) {
    return Bad("section plan: \"{}\": spill= cannot be in a file", plan_text_);
  }
  // Writers say where tokens are kept exact; older ones did not keep any.
  Plan said = *plan;
  for (LayerRule& rule : said.rules) rule.exact_tokens = rule.exact_tokens.value_or(0);
  Result<ResolvedPlan> resolved = ResolvePlan(said, shape_);
  if (!resolved.ok()) {
    return Status(resolved.status().code(),
                  fmt::format("{}: section plan: {}", name_, resolved.status().message()));
  }
  plan_ = std::move(*plan);
  layer_plans_ = std::move(resolved->layers);
  return Status();
}

Status CacheFile::ParseRungs() {
  const auto records = Records<RungRecord>(SectionKind::kRungs);
  const StripShape key_shape = {0, 0, shape_.key_dim, shape_.page_tokens};
  const StripShape value_shape = {0, 0, shape_.value_dim, shape_.page_tokens};
  for (size_t i = 0; i < records.size(); ++i) {
    const RungRecord& record = records[i];
    const auto nul = std::find(record.name.begin(), record.name.end(), '\0');
    const std::string rung_name(record.name.begin(), nul);
    if (std::any_of(nul, record.name.end(), [](char letter) { return letter != '\0'; }))
      return Bad("rung {}: its name has bytes behind its end", i);
    const RungDescriptor* rung = FindRung(rung_name);
    if (rung == nullptr) {
      return Unimplemented(fmt::format("{}: rung {}: \"{}\" is not known to this build; known: {}",
                                       name_, i, rung_name, KnownRungNames()));
    }
    const auto expected = [rung](Part part, const StripShape& shape) -> uint64_t {
      return rung->CheckDim(shape.dim).ok() ? rung->StripBytes(part, shape) : 0;
    };
    if (record.key_strip_bytes != expected(Part::kKey, key_shape)) {
      return Bad("rung {}: key_strip_bytes {} is not {}", i, record.key_strip_bytes,
                 expected(Part::kKey, key_shape));
    }
    if (record.value_strip_bytes != expected(Part::kValue, value_shape)) {
      return Bad("rung {}: value_strip_bytes {} is not {}", i, record.value_strip_bytes,
                 expected(Part::kValue, value_shape));
    }
    if (rung->needs_codebook() != (record.codebook_hash != 0)) {
      return Bad("rung {}: {} has codebook_hash {:016x}", i, rung_name, record.codebook_hash);
    }
    if (record.reserved != 0) return Bad("rung {}: a reserved field is not 0", i);
    rungs_.push_back(rung);
    codebook_hashes_.push_back(record.codebook_hash);
  }
  return Status();
}

Status CacheFile::ParseSequences() {
  const std::vector<std::byte>& tokens = section(SectionKind::kTokens).bytes;
  tokens_.resize(tokens.size() / 4);
  cache_file_internal::Get get{tokens.data()};
  for (int32_t& token : tokens_) get(token);
  sequences_ = Records<SequenceRecord>(SectionKind::kSequences);
  if (sequences_.size() != header_.num_sequences)
    return Bad("num_sequences {} is not {}, the records", header_.num_sequences, sequences_.size());
  uint64_t next = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const SequenceRecord& record = sequences_[i];
    if (record.next_position < 0 || record.next_position > kMaxFilePosition) {
      return Bad("sequence {}: next_position {} is outside 0 … {}", i, record.next_position,
                 kMaxFilePosition);
    }
    if (record.first_token != next)
      return Bad("sequence {}: first_token {} is not {}", i, record.first_token, next);
    if (record.num_tokens > tokens_.size() - next) {
      return Bad("sequence {}: num_tokens {} > {}, those left", i, record.num_tokens,
                 tokens_.size() - next);
    }
    const bool ended = (record.flags & SequenceRecord::kPromptEnded) != 0;
    const bool open = (record.flags & SequenceRecord::kPromptOpen) != 0;
    const bool folds = std::any_of(layer_plans_.begin(), layer_plans_.end(),
                                   [](const LayerForm& plan) { return plan.fold.has_value(); });
    if (record.flags > (SequenceRecord::kPromptEnded | SequenceRecord::kPromptOpen) ||
        (open && !(ended && folds)))
      return Bad("sequence {}: flags {:#x} are not known here", i, record.flags);
    const std::optional<FoldRule>& fold = layer_plans_.front().fold;
    const bool restarts = fold && fold->restart_positions && ended;
    if (record.tokens_restarted != 0 && !restarts) {
      return Bad("sequence {}: tokens_restarted {} where the plan restarts no positions", i,
                 record.tokens_restarted);
    }
    next += record.num_tokens;
  }
  if (next != tokens_.size())
    return Bad("section tokens: {} of {} belong to no sequence", tokens_.size() - next,
               tokens_.size());
  return Status();
}

Status CacheFile::ReadPage(uint64_t index, std::byte* to) const {
  const PageRecord& record = pages_[index];
  if (record.IsPacked()) return InflatePage(index, to);
  std::memcpy(to, bytes_.data() + record.offset, record.stored_bytes);
  if (mapping_ != nullptr) mapping_->Forget(record.offset, record.stored_bytes);
  const uint64_t checksum = FileChecksum({to, record.stored_bytes});
  if (checksum != record.checksum)
    return BadPage(index,
                   fmt::format("checksum {:#018x} is not {:#018x}", checksum, record.checksum));
  const RungDescriptor& key_rung = *rungs_[record.key_rung];
  const RungDescriptor& value_rung = *rungs_[record.value_rung];
  for (int head = 0; head < shape_.num_kv_heads; ++head) {
    const StripShape key_shape = {static_cast<int>(record.layer), head, shape_.key_dim,
                                  shape_.page_tokens};
    const StripShape value_shape = {static_cast<int>(record.layer), head, shape_.value_dim,
                                    shape_.page_tokens};
    Status status = key_rung.CheckStrip(Part::kKey, key_shape, to);
    to += key_rung.StripBytes(Part::kKey, key_shape);
    if (status.ok()) status = value_rung.CheckStrip(Part::kValue, value_shape, to);
    to += value_rung.StripBytes(Part::kValue, value_shape);
    if (!status.ok()) return BadPage(index, fmt::format("KV head {}: {}", head, status.message()));
  }
  return Status();
}

Status CacheFile::BadPage(uint64_t index, const std::string& what) const {
  const PageRecord& record = pages_[index];
  return Bad("page {}, layer {}, positions {} … {}: {}", index, record.layer, record.first_position,
             record.first_position + int64_t{record.rows} * record.tokens_per_row - 1, what);
}

Status CacheFile::Read(uint64_t index, const Page&, std::byte* to) const {
  return ReadPage(index, to);
}

}  // namespace varve
