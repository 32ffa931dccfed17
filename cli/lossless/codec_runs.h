// One way to pack the rows of a layer and part: bytes, times, and the proof that they come back.
// What `varve lossless` and `varve bench codec` share.

#ifndef VARVE_CLI_LOSSLESS_CODEC_RUNS_H_
#define VARVE_CLI_LOSSLESS_CODEC_RUNS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/lossless/kv_dump.h"
#include "store/dictionary.h"
#include "store/gear_stream.h"
#include "varve/status.h"

namespace varve::cli {

enum class CodecKind {
  kVarve,          // pages of 64 tokens with a dictionary
  kVarveQuick,     // the same in the form that unpacks quickly, as a running cache has it
  kVarveNoTables,  // pages of 64 tokens, each by itself
  kGear,           // the gear frame: predictors, RLE and zstd
  kZstd,           // zstd-3 on the bytes as they are
  kLz4,            // lz4 on the bytes as they are
};
const char* CodecName(CodecKind kind);

// Tokens that are packed together.
struct TokenSpan {
  int64_t begin = 0;
  int64_t count = 0;
};
// Consecutive spans of `size` tokens over [begin, end), the last shorter; before them one of
// `first` tokens, if that is not 0.
std::vector<TokenSpan> CutSpans(int64_t begin, int64_t end, int64_t first, int64_t size);

// Where dictionaries come from; only kVarve and kVarveQuick look at it.
enum class DictionaryScope {
  kAll,       // one, from all pages
  kEachSpan,  // one for each span, from its pages
  kRunning,   // as a cache that packs span after span: made anew from all pages so far once there
              // are twice as many, up to kEnoughTokens; where rows repeat, once there are half as
              // many more, for good. What was packed before is packed again
};
inline constexpr int64_t kEnoughTokens = 1024;

inline constexpr int64_t kPageRows = 64;

// Rows packed by one codec. Holds what it packed, so that decoding can be timed again and again.
class CodecRun {
 public:
  // `rows` must outlive the run. Spans of zstd, lz4 and gear are one frame each.
  CodecRun(CodecKind kind, const DumpRows& rows, std::vector<TokenSpan> spans,
           DictionaryScope scope = DictionaryScope::kAll);

  // Packs and unpacks everything once and compares: call it first.
  Status Check();
  // Seconds of packing or unpacking everything once. Dictionaries are made before.
  double TimeEncode();
  double TimeDecode();

  CodecKind kind() const { return kind_; }
  uint64_t raw_bytes() const { return raw_bytes_; }
  // Packed parts and dictionaries, headers included.
  uint64_t packed_bytes() const { return packed_bytes_; }
  uint64_t dictionary_bytes() const { return dictionary_bytes_; }
  double ratio() const {
    return static_cast<double>(raw_bytes_) / static_cast<double>(packed_bytes_);
  }

 private:
  // A frame of its own: a page, or a whole span.
  struct Item {
    PagePart page;                     // varve
    std::span<const std::byte> bytes;  // the others
    const store::Dictionary* dictionary = nullptr;
    std::vector<std::byte> packed;
  };
  Status PackItem(Item& item) const;
  Status UnpackItem(const Item& item, std::vector<std::byte>& out) const;
  Status MakeDictionaries();
  Status MakeDictionary(size_t begin, size_t end);
  Status MakeRunningDictionaries();
  void UseDictionary(size_t begin, size_t end);

  CodecKind kind_;
  const DumpRows& rows_;
  std::vector<TokenSpan> spans_;
  DictionaryScope scope_;
  store::GearPredictorSet predictors_;
  std::vector<std::shared_ptr<const store::Dictionary>> dictionaries_;
  std::vector<Item> items_;
  std::vector<size_t> first_item_;  // of each span, and the end
  uint64_t raw_bytes_ = 0;
  uint64_t packed_bytes_ = 0;
  uint64_t dictionary_bytes_ = 0;
};

// 16 bits per value / (H(high byte | channel) + H(low byte)): what a coder reaches that knows the
// distribution of every channel's high byte exactly and that of the low bytes. f32: 32 bits, the
// other three bytes by their own entropy. A plug-in estimate: with few tokens it is too high.
double EntropyBound(const DumpRows& rows);

}  // namespace varve::cli

#endif  // VARVE_CLI_LOSSLESS_CODEC_RUNS_H_
