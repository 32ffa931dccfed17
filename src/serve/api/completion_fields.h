// From the JSON of a request to what the engine takes. The fields are those of OpenAI's API and of
// llama-server, whichever endpoint they come to. Pure functions.

#ifndef VARVE_SERVE_API_COMPLETION_FIELDS_H_
#define VARVE_SERVE_API_COMPLETION_FIELDS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/api_error.h"
#include "serve/api/served_model.h"
#include "serve/engine/completion_request.h"

namespace varve::serve {

inline constexpr int64_t kMaxChoices = 16;   // of one request
inline constexpr size_t kMaxStops = 16;      // stop texts
inline constexpr int64_t kMaxLogprobs = 20;  // best tokens beside the drawn one
inline constexpr size_t kMaxResponseFields = 64;

struct CompletionCall {
  std::vector<CompletionRequest> requests;  // one per choice: prompts × n
  std::vector<std::string> prompt_texts;    // as they came; empty for token ids and chats
  bool stream = false;
  bool include_usage = false;  // a last chunk of a stream with usage
  bool return_tokens = false;  // llama-server: ids beside the text
  bool echo = false;           // the prompt stands before the answer
  // llama-server: of the answer only these, "timings/prompt_n" for one inside another; empty: all.
  std::vector<std::string> response_fields;
};

// /v1/completions and /completion: "prompt" is a text, token ids, a list that mixes both, or a list
// of prompts. `seed` is used where the request has none.
ApiError ReadCompletion(const nlohmann::json& body, const ServedModel& model,
                        std::string_view tenant, uint64_t seed, CompletionCall* call);

// /v1/chat/completions: "messages".
ApiError ReadChat(const nlohmann::json& body, const ServedModel& model, std::string_view tenant,
                  uint64_t seed, CompletionCall* call);

// The tenant that a key and a salt make: pages are shared among requests of the same two alone.
std::string TenantOf(std::string_view key, std::string_view salt);

// The tokens of a body's "messages" and "tools", as the model's chat template has them.
ApiError ChatTokens(const nlohmann::json& body, const ServedModel& model,
                    std::vector<int32_t>* tokens, std::string* text);

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_COMPLETION_FIELDS_H_
