// ServedModel: what answers say about the model, and what requests are read with. Immutable while
// the server runs; everything it points to must outlive it.

#ifndef VARVE_SERVE_API_SERVED_MODEL_H_
#define VARVE_SERVE_API_SERVED_MODEL_H_

#include <cstdint>
#include <string>

#include "runtime/tokenizer/tokenizer.h"

namespace varve::serve {

// The messages of a chat, one below the other, for a model without a chat template.
inline constexpr const char* kPlainChat = "plain";

struct ServedModel {
  std::string id;  // in "model" of answers
  std::string path;
  const Tokenizer* tokenizer = nullptr;
  std::string chat_format;  // one of ChatFormatNames(), or kPlainChat
  int64_t context = 0;
  int64_t trained_context = 0;
  int vocab_size = 0;
  int64_t started_s = 0;   // Unix time
  int64_t max_tokens = 0;  // that a request may ask for; 0: as the context has room for
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_SERVED_MODEL_H_
