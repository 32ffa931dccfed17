// AnswerFormat: how one endpoint writes answers: as one JSON object, or as the chunks of a stream.
// Three of them: OpenAI's chat, OpenAI's completions, llama-server's /completion. An object writes
// the answers of one request. One thread.

#ifndef VARVE_SERVE_API_ANSWER_FORMAT_H_
#define VARVE_SERVE_API_ANSWER_FORMAT_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/completion_fields.h"
#include "serve/api/served_model.h"
#include "serve/engine/completion_request.h"

namespace varve::serve {

// An answer so far.
struct CollectedAnswer {
  std::string text;
  std::vector<AnswerToken> tokens;
  std::optional<AnswerEnd> end;
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The chunks of a stream: before all, for one event (its last included; may be none), and after
  // the last event of the last answer.
  virtual std::vector<nlohmann::ordered_json> Open() { return {}; }
  virtual std::vector<nlohmann::ordered_json> Chunks(const AnswerEvent& event) = 0;
  virtual std::vector<nlohmann::ordered_json> Close(
      const std::vector<CollectedAnswer>& answers) = 0;
  // True: the stream ends with "data: [DONE]".
  virtual bool says_done() const { return true; }

  // Everything at once.
  virtual nlohmann::ordered_json Whole(const std::vector<CollectedAnswer>& answers) = 0;
};

// `call` and `model` must outlive the format. `id` is what the answer is called.
std::unique_ptr<AnswerFormat> MakeChatFormat(const CompletionCall& call, const ServedModel& model,
                                             std::string id, int64_t created_s);
std::unique_ptr<AnswerFormat> MakeTextFormat(const CompletionCall& call, const ServedModel& model,
                                             std::string id, int64_t created_s);
std::unique_ptr<AnswerFormat> MakeLlamaFormat(const CompletionCall& call, const ServedModel& model);

// --- what they share ---

// A list of numbers: a token may be half a character.
nlohmann::ordered_json BytesJson(std::string_view bytes);
// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}; a prompt with
// several answers counts once.
nlohmann::ordered_json UsageJson(const std::vector<CollectedAnswer>& answers, size_t num_prompts);
// llama-server's "timings".
nlohmann::ordered_json TimingsJson(const AnswerEnd& end);
// "stop" or "length".
const char* OpenAiFinish(FinishReason reason);

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_ANSWER_FORMAT_H_
