// A whole model file for tests: Llama architecture, 2 layers, and random F32 weights that make its
// predictions depend on the whole context. Its vocabulary is byte-level (256 bytes, <bos>, <eos>;
// BOS is added). About 300 KB in memory.

#ifndef VARVE_TESTS_TINY_MODEL_H_
#define VARVE_TESTS_TINY_MODEL_H_

#include <string>
#include <string_view>

#include "tests/gguf_testing.h"

namespace varve {

inline constexpr int kTinyContext = 1024;

// What tests of unusual files change.
struct TinyModelOptions {
  int context = kTinyContext;
  std::string name = "tiny";  // empty: no such key
  bool add_bos = true;
  int absent_byte = -1;  // has no token; another text takes its place
  int spare_tokens = 0;  // of the tokenizer, beyond the model's vocabulary
  int spare_types = 0;   // types of tokens that are not there
};

// The builder of the file: Build() for bytes, Write(path) for a file.
GgufBuilder TinyModel(const TinyModelOptions& options = {});

// The same with layers that do nothing and an output that always continues a byte of `chain` with
// the byte after it. No byte may occur twice.
GgufBuilder ChainModel(std::string_view chain);

}  // namespace varve

#endif  // VARVE_TESTS_TINY_MODEL_H_
