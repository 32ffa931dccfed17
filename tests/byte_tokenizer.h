// ByteTokenizer: every byte is a token; BOS and EOS follow them. For tests that need text but no
// vocabulary.

#ifndef VARVE_TESTS_BYTE_TOKENIZER_H_
#define VARVE_TESTS_BYTE_TOKENIZER_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"

namespace varve {

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(bool adds_bos = true) : adds_bos_(adds_bos) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i);
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && adds_bos_) ids.push_back(bos());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string_view TokenBytes(int32_t id, bool /*show_special*/) const override {
    if (id < 0 || id > 255) return {};
    return {&bytes_[static_cast<size_t>(id)], 1};
  }
  std::string Decode(std::span<const int32_t> ids, bool show_special) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id, show_special);
    return text;
  }
  int32_t vocab_size() const override { return 258; }
  int32_t bos() const override { return 256; }
  int32_t eos() const override { return 257; }
  bool adds_bos() const override { return adds_bos_; }
  bool IsEnd(int32_t id) const override { return id == eos(); }
  int32_t Find(std::string_view token) const override {
    return token.size() == 1 ? static_cast<unsigned char>(token[0]) : -1;
  }

 private:
  bool adds_bos_;
  std::array<char, 256> bytes_{};
};

}  // namespace varve

#endif  // VARVE_TESTS_BYTE_TOKENIZER_H_
