// ServedModel: what answers say about the model, and what requests are read with. Immutable while
// the server runs; everything it points to must outlive it.

#ifndef VARVE_SERVE_API_SERVED_MODEL_H_
#define VARVE_SERVE_API_SERVED_MODEL_H_

#include <cstdint>
#include <string>

#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

namespace varve::serve {

struct ServedModel {
  std::string id;  // in "model" of answers
  std::string path;
  const Tokenizer* tokenizer = nullptr;
  // Null: the messages of a chat are text to continue, one below the other.
  const ChatTemplate* chat = nullptr;
  std::string chat_format;  // for people: "template" (the model's own), a built-in one, "plain"
  int64_t context = 0;
  int64_t trained_context = 0;
  int vocab_size = 0;
  int64_t started_s = 0;   // Unix time
  int64_t max_tokens = 0;  // that a request may ask for; 0: as the context has room for
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_SERVED_MODEL_H_
