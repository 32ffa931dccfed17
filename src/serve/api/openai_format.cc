// Answers as OpenAI's API writes them: chat.completion and text_completion.

#include <algorithm>
#include <utility>

#include "serve/api/answer_format.h"

namespace varve::serve {
namespace {

using nlohmann::ordered_json;

// What both formats have: the envelope, and the chunks behind the last event.
class OpenAiFormat : public AnswerFormat {
 public:
  OpenAiFormat(const CompletionCall& call, const ServedModel& model, std::string id,
               int64_t created_s)
      : call_(call), model_(model), id_(std::move(id)), created_s_(created_s) {}

  std::vector<ordered_json> Close(const std::vector<CollectedAnswer>& answers) override {
    if (!call_.include_usage) return {};
    ordered_json last = Envelope(chunk_object(), ordered_json::array());
    last["usage"] = UsageJson(answers, num_prompts());
    if (answers.size() == 1 && answers[0].end) last["timings"] = TimingsJson(*answers[0].end);
    return {std::move(last)};
  }

  ordered_json Whole(const std::vector<CollectedAnswer>& answers) override {
    ordered_json choices = ordered_json::array();
    for (size_t i = 0; i < answers.size(); ++i) choices.push_back(Choice(i, answers[i]));
    ordered_json whole = Envelope(whole_object(), std::move(choices));
    whole["usage"] = UsageJson(answers, num_prompts());
    if (answers.size() == 1 && answers[0].end) whole["timings"] = TimingsJson(*answers[0].end);
    return whole;
  }

 protected:
  virtual const char* chunk_object() const = 0;
  virtual const char* whole_object() const = 0;
  virtual ordered_json Choice(size_t index, const CollectedAnswer& answer) = 0;

  ordered_json Envelope(const char* object, ordered_json choices) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_s_},
            {"model", model_.id},
            {"system_fingerprint", "varve"},
            {"choices", std::move(choices)}};
  }
  // A chunk with one choice; the last one of an answer has timings.
  ordered_json Chunk(const AnswerEvent& event, ordered_json choice) const {
    choice["finish_reason"] = nullptr;
    if (event.end) choice["finish_reason"] = OpenAiFinish(event.end->reason);
    ordered_json chunk = Envelope(chunk_object(), ordered_json::array({std::move(choice)}));
    if (event.end) chunk["timings"] = TimingsJson(*event.end);
    return chunk;
  }
  // A chat has no texts of prompts, and is one.
  size_t num_prompts() const { return std::max<size_t>(call_.prompt_texts.size(), 1); }
  bool wants_logprobs() const {
    return !call_.requests.empty() && call_.requests[0].num_logprobs >= 0;
  }
  std::string_view Piece(int32_t token) const { return model_.tokenizer->TokenBytes(token, true); }

  const CompletionCall& call_;
  const ServedModel& model_;

 private:
  std::string id_;
  int64_t created_s_;
};

class ChatFormat final : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  std::vector<ordered_json> Open() override {
    std::vector<ordered_json> chunks;
    for (const CompletionRequest& request : call_.requests) {
      const AnswerEvent event{.choice = request.choice, .text = {}, .token = {}, .end = {}};
      chunks.push_back(Chunk(
          event, {{"index", request.choice}, {"delta", {{"role", "assistant"}, {"content", ""}}}}));
    }
    return chunks;
  }

  std::vector<ordered_json> Chunks(const AnswerEvent& event) override {
    std::vector<ordered_json> chunks;
    const bool has_logprobs = wants_logprobs() && event.token;
    if (!event.text.empty() || has_logprobs) {
      ordered_json choice = {{"index", event.choice}, {"delta", {{"content", event.text}}}};
      if (has_logprobs) choice["logprobs"] = Logprobs({*event.token});
      AnswerEvent piece = event;
      piece.end.reset();
      chunks.push_back(Chunk(piece, std::move(choice)));
    }
    if (event.end) {
      chunks.push_back(Chunk(event, {{"index", event.choice}, {"delta", ordered_json::object()}}));
    }
    return chunks;
  }

 private:
  const char* chunk_object() const override { return "chat.completion.chunk"; }
  const char* whole_object() const override { return "chat.completion"; }

  ordered_json Choice(size_t index, const CollectedAnswer& answer) override {
    ordered_json choice = {{"index", index},
                           {"message", {{"role", "assistant"}, {"content", answer.text}}},
                           {"logprobs", nullptr},
                           {"finish_reason", nullptr}};
    if (wants_logprobs()) choice["logprobs"] = Logprobs(answer.tokens);
    if (answer.end) choice["finish_reason"] = OpenAiFinish(answer.end->reason);
    return choice;
  }

  ordered_json OneLogprob(int32_t token, float logprob) const {
    const std::string_view piece = Piece(token);
    return {{"token", piece}, {"logprob", logprob}, {"bytes", BytesJson(piece)}};
  }
  ordered_json Logprobs(const std::vector<AnswerToken>& tokens) const {
    ordered_json content = ordered_json::array();
    for (const AnswerToken& token : tokens) {
      ordered_json entry = OneLogprob(token.token, token.logprob);
      entry["top_logprobs"] = ordered_json::array();
      for (const TokenLogprob& best : token.best) {
        entry["top_logprobs"].push_back(OneLogprob(best.token, best.logprob));
      }
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}};
  }
};

class TextFormat final : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  std::vector<ordered_json> Chunks(const AnswerEvent& event) override {
    const bool has_logprobs = wants_logprobs() && event.token;
    if (event.text.empty() && !has_logprobs && !event.end) return {};
    ordered_json choice = {{"text", event.text}, {"index", event.choice}, {"logprobs", nullptr}};
    if (has_logprobs) choice["logprobs"] = Logprobs({*event.token});
    return {Chunk(event, std::move(choice))};
  }

 private:
  const char* chunk_object() const override { return "text_completion"; }
  const char* whole_object() const override { return "text_completion"; }

  ordered_json Choice(size_t index, const CollectedAnswer& answer) override {
    const size_t per_prompt = call_.requests.size() / call_.prompt_texts.size();
    const std::string before = call_.echo ? call_.prompt_texts[index / per_prompt] : "";
    ordered_json choice = {{"text", before + answer.text},
                           {"index", index},
                           {"logprobs", nullptr},
                           {"finish_reason", nullptr}};
    if (wants_logprobs()) choice["logprobs"] = Logprobs(answer.tokens);
    if (answer.end) choice["finish_reason"] = OpenAiFinish(answer.end->reason);
    return choice;
  }

  ordered_json Logprobs(const std::vector<AnswerToken>& tokens) const {
    ordered_json texts = ordered_json::array();
    ordered_json logprobs = ordered_json::array();
    ordered_json best = ordered_json::array();
    for (const AnswerToken& token : tokens) {
      texts.push_back(Piece(token.token));
      logprobs.push_back(token.logprob);
      ordered_json of_token = ordered_json::object();
      for (const TokenLogprob& one : token.best) {
        of_token[std::string(Piece(one.token))] = one.logprob;
      }
      best.push_back(std::move(of_token));
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(best)}};
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeChatFormat(const CompletionCall& call, const ServedModel& model,
                                             std::string id, int64_t created_s) {
  return std::make_unique<ChatFormat>(call, model, std::move(id), created_s);
}

std::unique_ptr<AnswerFormat> MakeTextFormat(const CompletionCall& call, const ServedModel& model,
                                             std::string id, int64_t created_s) {
  return std::make_unique<TextFormat>(call, model, std::move(id), created_s);
}

}  // namespace varve::serve
