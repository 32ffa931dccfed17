// What a GGUF file says about the model in it, for any architecture: read from keys and tensor
// shapes, without loading anything. A number that the file does not give, or gives in a form that
// makes no sense, is missing here; nothing is guessed.

#ifndef VARVE_CLI_INSPECT_MODEL_SUMMARY_H_
#define VARVE_CLI_INSPECT_MODEL_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/inspect/type_shares.h"
#include "runtime/gguf/gguf_file.h"

namespace varve::cli {

struct ModelSummary {
  std::string path;
  uint32_t version = 0;
  int64_t parts = 1;
  uint64_t file_bytes = 0;
  uint64_t hash = 0;         // GgufFile::ContentHash
  std::string architecture;  // empty where the file is silent, as all strings here
  std::string name;
  TypeShares types;

  std::optional<int64_t> context;
  std::optional<int64_t> layers;
  std::optional<int64_t> width;
  std::optional<int64_t> ffn_width;
  std::optional<int64_t> heads;
  std::vector<int64_t> kv_heads;  // one for all layers, one per layer, or nothing
  std::optional<int64_t> key_dim;
  std::optional<int64_t> value_dim;
  // All layers, K and V in f16; missing where the model has no ordinary KV cache.
  std::optional<uint64_t> kv_bytes_per_token;

  std::string tokenizer;  // "llama", "gpt2", …
  std::string pre_tokenizer;
  std::optional<uint64_t> vocab_size;
  bool has_chat_template = false;
  std::string chat_template_error;  // why it cannot be run; empty: it can
};

ModelSummary SummarizeModel(const GgufFile& file);

// The summary as lines for people, the types as a table behind it.
std::string RenderSummary(const ModelSummary& summary, bool colour);
nlohmann::ordered_json SummaryJson(const ModelSummary& summary);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_MODEL_SUMMARY_H_
