#include "cli/lossless/codec_runs.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/timer.h"
#include "store/gear_frame.h"
#include "store/part_codec.h"

namespace varve::cli {
namespace {

using store::LaneType;

bool HasDictionary(CodecKind kind) {
  return kind == CodecKind::kVarve || kind == CodecKind::kVarveQuick;
}

bool IsVarve(CodecKind kind) { return HasDictionary(kind) || kind == CodecKind::kVarveNoTables; }

double EntropyBits(std::span<const uint32_t> counts) {
  double sum = 0, bits = 0;
  for (const uint32_t count : counts) sum += count;
  for (const uint32_t count : counts) {
    if (count > 0) bits -= count / sum * std::log2(count / sum);
  }
  return bits;
}

}  // namespace

const char* CodecName(CodecKind kind) {
  switch (kind) {
    case CodecKind::kVarve:
      return "varve";
    case CodecKind::kVarveQuick:
      return "varve-quick";
    case CodecKind::kVarveNoTables:
      return "varve-alone";
    case CodecKind::kGear:
      return "gear";
    case CodecKind::kZstd:
      return "zstd-3";
    case CodecKind::kLz4:
      return "lz4";
  }
  return "";
}

std::vector<TokenSpan> CutSpans(int64_t begin, int64_t end, int64_t first, int64_t size) {
  std::vector<TokenSpan> spans;
  int64_t count = first > 0 ? first : size;
  while (begin < end) {
    count = std::min(count, end - begin);
    spans.push_back({begin, count});
    begin += count;
    count = size;
  }
  return spans;
}

CodecRun::CodecRun(CodecKind kind, const DumpRows& rows, std::vector<TokenSpan> spans,
                   DictionaryScope scope)
    : kind_(kind),
      rows_(rows),
      spans_(std::move(spans)),
      scope_(scope),
      predictors_(rows.part == Part::kKey ? store::GearPredictorSet::Keys()
                                          : store::GearPredictorSet::Values()) {
  for (const TokenSpan& span : spans_) {
    first_item_.push_back(items_.size());
    if (IsVarve(kind_)) {
      for (const TokenSpan& page : CutSpans(span.begin, span.begin + span.count, 0, kPageRows)) {
        items_.push_back({MakePagePart(rows, page.begin, page.count), {}, nullptr, {}});
        raw_bytes_ += items_.back().page.bytes.size();
      }
    } else {
      Item item;
      item.bytes = std::span(rows.bytes)
                       .subspan(static_cast<size_t>(span.begin) * rows.row_bytes(),
                                static_cast<size_t>(span.count) * rows.row_bytes());
      raw_bytes_ += item.bytes.size();
      items_.push_back(std::move(item));
    }
  }
  first_item_.push_back(items_.size());
}

// Makes a dictionary from items [begin, end).
Status CodecRun::MakeDictionary(size_t begin, size_t end) {
  store::DictionaryOptions options;
  options.min_count = 2;  // a row that came once stays with its page
  std::vector<store::PartView> samples;
  for (size_t i = begin; i < end; ++i) {
    // Pages of another layout (a short last one of K) go without.
    const bool same = items_[i].page.shape.layout == items_[begin].page.shape.layout;
    if (same) samples.push_back(items_[i].page.view());
  }
  VARVE_ASSIGN_OR_RETURN(auto dictionary, store::BuildDictionary(samples, options));
  dictionaries_.push_back(std::move(dictionary));
  return Status();
}

// Items [begin, end) use the latest dictionary.
void CodecRun::UseDictionary(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const bool serves = dictionaries_.back()->Serves(items_[i].page.shape);
    items_[i].dictionary = serves ? dictionaries_.back().get() : nullptr;
  }
}

Status CodecRun::MakeRunningDictionaries() {
  int64_t tokens = 0, learned = 0;
  for (size_t s = 0; s < spans_.size(); ++s) {
    const size_t begin = first_item_[s], end = first_item_[s + 1];
    tokens += spans_[s].count;
    const bool rows = !dictionaries_.empty() && dictionaries_.back()->num_rows() > 0;
    if (rows ? 2 * tokens >= 3 * learned : learned < kEnoughTokens && tokens >= 2 * learned) {
      VARVE_RETURN_IF_ERROR(MakeDictionary(0, end));
      learned = tokens;
    }
    UseDictionary(learned == tokens ? 0 : begin, end);
  }
  return Status();
}

Status CodecRun::MakeDictionaries() {
  if (!HasDictionary(kind_)) return Status();
  if (scope_ == DictionaryScope::kRunning) {
    VARVE_RETURN_IF_ERROR(MakeRunningDictionaries());
  } else if (scope_ == DictionaryScope::kAll) {
    VARVE_RETURN_IF_ERROR(MakeDictionary(0, items_.size()));
    UseDictionary(0, items_.size());
  } else {
    for (size_t s = 0; s < spans_.size(); ++s) {
      VARVE_RETURN_IF_ERROR(MakeDictionary(first_item_[s], first_item_[s + 1]));
      UseDictionary(first_item_[s], first_item_[s + 1]);
    }
  }
  // Those that a page needs count.
  for (const auto& dictionary : dictionaries_) {
    const bool used = std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
      return item.dictionary == dictionary.get();
    });
    if (used) dictionary_bytes_ += dictionary->bytes();
  }
  return Status();
}

Status CodecRun::PackItem(Item& item) const {
  if (IsVarve(kind_)) {
    const store::PackGoal goal =
        kind_ == CodecKind::kVarveQuick ? store::PackGoal::kQuick : store::PackGoal::kSmall;
    VARVE_ASSIGN_OR_RETURN(item.packed, store::Pack(item.page.view(), item.dictionary, goal));
    return Status();
  }
  if (kind_ == CodecKind::kGear) {
    const size_t word_bytes = rows_.lane == LaneType::kF32 ? 4 : 2;
    VARVE_ASSIGN_OR_RETURN(item.packed, store::GearEncode(item.bytes, word_bytes, predictors_));
    return Status();
  }
  size_t size = 0;
  if (kind_ == CodecKind::kZstd) {
    static const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(),
                                                                            ZSTD_freeCCtx);
    item.packed.resize(ZSTD_compressBound(item.bytes.size()));
    size = ZSTD_compressCCtx(context.get(), item.packed.data(), item.packed.size(),
                             item.bytes.data(), item.bytes.size(), 3);
    if (ZSTD_isError(size) != 0) return Internal(ZSTD_getErrorName(size));
  } else {
    const int bytes = static_cast<int>(item.bytes.size());
    item.packed.resize(static_cast<size_t>(LZ4_compressBound(bytes)));
    size = static_cast<size_t>(LZ4_compress_default(
        reinterpret_cast<const char*>(item.bytes.data()),
        reinterpret_cast<char*>(item.packed.data()), bytes, static_cast<int>(item.packed.size())));
  }
  item.packed.resize(size);
  return Status();
}

Status CodecRun::UnpackItem(const Item& item, std::vector<std::byte>& out) const {
  if (IsVarve(kind_)) {
    out.resize(item.page.bytes.size());
    return store::Unpack(item.packed, item.dictionary, {out, 0});
  }
  if (kind_ == CodecKind::kGear) {
    const size_t word_bytes = rows_.lane == LaneType::kF32 ? 4 : 2;
    VARVE_ASSIGN_OR_RETURN(out, store::GearDecode(item.packed, word_bytes, item.bytes.size()));
    return Status();
  }
  out.resize(item.bytes.size());
  size_t size = 0;
  if (kind_ == CodecKind::kZstd) {
    static const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                            ZSTD_freeDCtx);
    size = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), item.packed.data(),
                               item.packed.size());
  } else {
    size = static_cast<size_t>(LZ4_decompress_safe(
        reinterpret_cast<const char*>(item.packed.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(item.packed.size()), static_cast<int>(out.size())));
  }
  if (size == out.size()) return Status();
  return Internal(fmt::format("{}: {} bytes came back of {}", CodecName(kind_), size, out.size()));
}

Status CodecRun::Check() {
  VARVE_RETURN_IF_ERROR(MakeDictionaries());
  packed_bytes_ = dictionary_bytes_;
  std::vector<std::byte> out;
  for (Item& item : items_) {
    VARVE_RETURN_IF_ERROR(PackItem(item));
    packed_bytes_ += item.packed.size();
    VARVE_RETURN_IF_ERROR(UnpackItem(item, out));
    const std::span<const std::byte> original =
        IsVarve(kind_) ? std::span<const std::byte>(item.page.bytes) : item.bytes;
    if (!std::equal(out.begin(), out.end(), original.begin(), original.end())) {
      return Internal(fmt::format("{}: other bytes came back", CodecName(kind_)));
    }
  }
  return Status();
}

double CodecRun::TimeEncode() {
  const Timer timer;
  for (Item& item : items_) {
    if (!PackItem(item).ok()) return std::nan("");
  }
  return timer.seconds();
}

double CodecRun::TimeDecode() {
  std::vector<std::byte> out;
  const Timer timer;
  for (const Item& item : items_) {
    if (!UnpackItem(item, out).ok()) return std::nan("");
  }
  return timer.seconds();
}

double EntropyBound(const DumpRows& rows) {
  const size_t width = rows.lane == LaneType::kF32 ? 4 : 2;
  const size_t channels = static_cast<size_t>(rows.num_heads) * rows.head_dim;
  const size_t tokens = static_cast<size_t>(rows.num_tokens);
  double bits = 0;
  std::array<uint32_t, 256> counts;
  for (size_t channel = 0; channel < channels; ++channel) {
    counts.fill(0);
    for (size_t t = 0; t < tokens; ++t) {
      const size_t element = t * channels + channel;
      ++counts[static_cast<size_t>(rows.bytes[element * width + width - 1])];
    }
    bits += EntropyBits(counts) / static_cast<double>(channels);
  }
  for (size_t lane = 0; lane + 1 < width; ++lane) {
    counts.fill(0);
    for (size_t i = lane; i < rows.bytes.size(); i += width) {
      ++counts[static_cast<size_t>(rows.bytes[i])];
    }
    bits += EntropyBits(counts);
  }
  return bits > 0 ? 8.0 * static_cast<double>(width) / bits : 0.0;
}

}  // namespace varve::cli
