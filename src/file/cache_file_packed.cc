#include "file/cache_file_packed.h"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "file/cache_file_reader.h"
#include "store/part_codec.h"

namespace varve {

// --- writing ---

size_t PackedBytesOf(const PageRecord& page, int num_kv_heads) {
  return page.IsPacked() ? page.stored_bytes - PackedEndsBytes(num_kv_heads) : 0;
}

Status PackedImage(const Page& page, std::vector<std::byte>* image, PackedStrips* strips) {
  PackedStrips own;
  if (strips == nullptr) strips = &own;
  if (const UnreadBytes* unread = page.unread()) {
    VARVE_RETURN_IF_ERROR(unread->source->ReadPacked(unread->index, page, strips));
  } else {
    const PackedPage& packed = *page.packed()->packed;
    strips->bytes.assign(packed.data, packed.data + packed.bytes);
    strips->ends = packed.ends;
    strips->dictionaries = packed.dictionaries;
  }
  PackedPayload(*strips, image);
  return Status();
}

void PackedPayload(const PackedStrips& strips, std::vector<std::byte>* image) {
  image->clear();
  cache_file_internal::Put put{image};
  for (const uint32_t end : strips.ends) put(end);
  image->insert(image->end(), strips.bytes.begin(), strips.bytes.end());
}

Status DictionaryWriter::Add(const PackedStrips& strips) {
  if (strips.dictionaries == nullptr) return Status();
  size_t begin = 0;
  for (size_t strip = 0; strip < strips.ends.size(); ++strip) {
    const size_t end = strips.ends[strip];
    VARVE_ASSIGN_OR_RETURN(
        store::PackedInfo info,
        store::ReadPackedInfo(std::span(strips.bytes).subspan(begin, end - begin)));
    begin = end;
    if (info.dictionary_hash != 0)
      VARVE_RETURN_IF_ERROR(AddOne(strips.dictionaries->of_strip[strip]));
  }
  return Status();
}

Status DictionaryWriter::AddOne(const std::shared_ptr<const store::Dictionary>& dictionary) {
  std::vector<const store::Dictionary*> chain;
  for (const store::Dictionary* link = dictionary.get(); link != nullptr; link = link->base().get())
    chain.push_back(link);
  if (chain.size() > kMaxDictionaryChain) {
    return Unimplemented(fmt::format("dictionary {:016x}: a chain of {} > {}", dictionary->hash(),
                                     chain.size(), kMaxDictionaryChain));
  }
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    if (!written_.insert((*link)->hash()).second) continue;
    const std::vector<std::byte> bytes = (*link)->Serialize();
    PutRecord(DictionaryRecord{(*link)->hash(), data_.size(), bytes.size(), FileChecksum(bytes)},
              &records_);
    data_.insert(data_.end(), bytes.begin(), bytes.end());
  }
  return Status();
}

// --- reading ---

Status CacheFile::ParseDictionaries() {
  const auto records = Records<DictionaryRecord>(SectionKind::kDictionaries);
  const std::vector<std::byte>& data = section(SectionKind::kDictionaryData).bytes;
  uint64_t next = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].offset != next)
      return Bad("dictionary {}: offset {} is not {}", i, records[i].offset, next);
    if (records[i].bytes > data.size() - next) {
      return Bad("dictionary {}: {} bytes > {}, those left", i, records[i].bytes,
                 data.size() - next);
    }
    VARVE_RETURN_IF_ERROR(AddDictionary(i, records[i]));
    next += records[i].bytes;
  }
  if (next != data.size()) {
    return Bad("section dictionary data: {} of {} bytes belong to no dictionary",
               data.size() - next, data.size());
  }
  dictionary_bytes_ = data.size();
  return Status();
}

Status CacheFile::AddDictionary(size_t index, const DictionaryRecord& record) {
  const auto bytes = std::span<const std::byte>(section(SectionKind::kDictionaryData).bytes)
                         .subspan(record.offset, record.bytes);
  const uint64_t checksum = FileChecksum(bytes);
  if (checksum != record.checksum) {
    return Bad("dictionary {}: checksum {:#018x} is not {:#018x}", index, record.checksum,
               checksum);
  }
  Result<uint64_t> base_hash = store::Dictionary::ParseBaseHash(bytes);
  if (!base_hash.ok()) return Bad("dictionary {}: {}", index, base_hash.status().message());
  std::shared_ptr<const store::Dictionary> base;
  if (*base_hash != 0) {
    const auto found = dictionary_index_.find(*base_hash);
    if (found == dictionary_index_.end())
      return Bad("dictionary {}: extends {:016x}, which is not before it", index, *base_hash);
    base = dictionaries_[found->second];
  }
  size_t chain = 1;
  for (const store::Dictionary* link = base.get(); link != nullptr; link = link->base().get())
    ++chain;
  if (chain > kMaxDictionaryChain)
    return Bad("dictionary {}: a chain of {} > {}", index, chain, kMaxDictionaryChain);
  Result<std::shared_ptr<const store::Dictionary>> parsed =
      store::Dictionary::Parse(bytes, std::move(base));
  if (!parsed.ok()) return Bad("dictionary {}: {}", index, parsed.status().message());
  if ((*parsed)->hash() != record.hash) {
    return Bad("dictionary {}: hash {:016x} is not {:016x}, its own", index, record.hash,
               (*parsed)->hash());
  }
  const store::PartShape& shape = (*parsed)->shape();
  const int dim = shape.layout == store::PartLayout::kKey ? shape_.key_dim : shape_.value_dim;
  if (shape.num_heads != 1 || shape.head_dim != dim) {
    return Bad("dictionary {}: is for {} heads of {}, strips have 1 of {}", index, shape.num_heads,
               shape.head_dim, dim);
  }
  if (!dictionary_index_.emplace(record.hash, index).second)
    return Bad("dictionary {}: hash {:016x} is there before", index, record.hash);
  dictionaries_.push_back(std::move(*parsed));
  return Status();
}

// No packed strip is larger than its raw strip and a header.
Status CacheFile::CheckStoredBytes(size_t index) const {
  const PageRecord& page = pages_[index];
  if (!page.IsPacked()) {
    if (page.stored_bytes == page.raw_bytes) return Status();
    return Bad("page {}: stored_bytes {} is not {}", index, page.stored_bytes, page.raw_bytes);
  }
  const uint64_t least = PackedEndsBytes(shape_.num_kv_heads) +
                         2 * static_cast<uint64_t>(shape_.num_kv_heads) * store::kPackedHeaderBytes;
  if (page.stored_bytes >= least && page.stored_bytes <= least + page.raw_bytes) return Status();
  return Bad("page {}: stored_bytes {} is outside {} … {}", index, page.stored_bytes, least,
             least + page.raw_bytes);
}

Status CacheFile::CheckPackedStrip(uint64_t index, int head, Part part,
                                   std::span<const std::byte> strip,
                                   std::shared_ptr<const store::Dictionary>* dictionary) const {
  const PageRecord& page = pages_[index];
  const bool key = part == Part::kKey;
  const auto bad = [&](const std::string& what) {
    return BadPage(index, fmt::format("{} of KV head {}: {}", key ? "K" : "V", head, what));
  };
  Result<store::PackedInfo> info = store::ReadPackedInfo(strip);
  if (!info.ok()) return bad(info.status().message());
  const RungDescriptor& rung = *rungs_[key ? page.key_rung : page.value_rung];
  const int dim = key ? shape_.key_dim : shape_.value_dim;
  const store::PartShape expected = PartShapeOf(rung, part, dim, shape_.page_tokens);
  const StripShape strip_shape = {static_cast<int>(page.layer), head, dim, shape_.page_tokens};
  if (info->shape != expected || info->unpacked_bytes != rung.StripBytes(part, strip_shape))
    return bad(fmt::format("its shape is not that of {} strips", rung.name));
  if (info->dictionary_hash != 0) {
    const auto found = dictionary_index_.find(info->dictionary_hash);
    if (found == dictionary_index_.end())
      return bad(fmt::format("dictionary {:016x} is not in the file", info->dictionary_hash));
    *dictionary = dictionaries_[found->second];
    if (!(*dictionary)->Serves(expected)) {
      return bad(
          fmt::format("dictionary {:016x} is for strips of another shape", info->dictionary_hash));
    }
  }
  // Attention takes any floats, but only scales that are in their range.
  if (store::IsFloat(expected.lane)) return Status();
  std::vector<std::byte> raw(info->unpacked_bytes);
  Status status = store::Unpack(strip, dictionary->get(), {raw, 0});
  if (status.ok()) status = rung.CheckStrip(part, strip_shape, raw.data());
  return status.ok() ? status : bad(status.message());
}

Status CacheFile::ReadPackedPage(uint64_t index, PackedStrips* to) const {
  const PageRecord& page = pages_[index];
  const std::vector<std::byte> payload(
      bytes_.begin() + static_cast<ptrdiff_t>(page.offset),
      bytes_.begin() + static_cast<ptrdiff_t>(page.offset + page.stored_bytes));
  if (mapping_ != nullptr) mapping_->Forget(page.offset, page.stored_bytes);
  const uint64_t checksum = FileChecksum(payload);
  if (checksum != page.checksum) {
    return BadPage(index,
                   fmt::format("checksum {:#018x} is not {:#018x}", checksum, page.checksum));
  }
  const size_t ends_bytes = PackedEndsBytes(shape_.num_kv_heads);
  to->ends.resize(ends_bytes / sizeof(uint32_t));
  cache_file_internal::Get get{payload.data()};
  for (uint32_t& end : to->ends) get(end);
  to->bytes.assign(payload.begin() + static_cast<ptrdiff_t>(ends_bytes), payload.end());
  auto list = std::make_shared<PackDictionaries>();
  std::vector<uint64_t> hashes;
  size_t begin = 0;
  for (size_t strip = 0; strip < to->ends.size(); ++strip) {
    const size_t end = to->ends[strip];
    if (end < begin || end > to->bytes.size()) {
      return BadPage(index, fmt::format("end {} of strip {} is outside {} … {}", end, strip, begin,
                                        to->bytes.size()));
    }
    std::shared_ptr<const store::Dictionary> dictionary;
    VARVE_RETURN_IF_ERROR(CheckPackedStrip(
        index, static_cast<int>(strip / 2), strip % 2 == 0 ? Part::kKey : Part::kValue,
        std::span(to->bytes).subspan(begin, end - begin), &dictionary));
    hashes.push_back(dictionary != nullptr ? dictionary->hash() : 0);
    list->of_strip.push_back(std::move(dictionary));
    begin = end;
  }
  if (begin != to->bytes.size()) {
    return BadPage(index,
                   fmt::format("the last strip ends at {}, not {}", begin, to->bytes.size()));
  }
  if (std::all_of(hashes.begin(), hashes.end(), [](uint64_t hash) { return hash == 0; }))
    return Status();
  const std::lock_guard lock(lists_mutex_);
  std::weak_ptr<const PackDictionaries>& known = lists_[hashes];
  to->dictionaries = known.lock();
  if (to->dictionaries == nullptr) {
    to->dictionaries = std::move(list);
    known = to->dictionaries;
  }
  return Status();
}

Status CacheFile::ReadPacked(uint64_t index, const Page&, PackedStrips* to) const {
  return ReadPackedPage(index, to);
}

Status CacheFile::InflatePage(uint64_t index, std::byte* to) const {
  PackedStrips strips;
  VARVE_RETURN_IF_ERROR(ReadPackedPage(index, &strips));
  const PageRecord& page = pages_[index];
  size_t begin = 0;
  for (size_t strip = 0; strip < strips.ends.size(); ++strip) {
    const bool key = strip % 2 == 0;
    const RungDescriptor& rung = *rungs_[key ? page.key_rung : page.value_rung];
    const size_t bytes =
        rung.StripBytes(key ? Part::kKey : Part::kValue,
                        {static_cast<int>(page.layer), static_cast<int>(strip / 2),
                         key ? shape_.key_dim : shape_.value_dim, shape_.page_tokens});
    const size_t end = strips.ends[strip];
    const Status status = store::Unpack(
        std::span(strips.bytes).subspan(begin, end - begin),
        strips.dictionaries ? strips.dictionaries->Of(strip) : nullptr, {{to, bytes}, 0});
    if (!status.ok()) {
      return BadPage(
          index, fmt::format("{} of KV head {}: {}", key ? "K" : "V", strip / 2, status.message()));
    }
    to += bytes;
    begin = end;
  }
  return Status();
}

}  // namespace varve
