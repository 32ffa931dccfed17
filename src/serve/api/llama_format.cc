// Answers as llama-server writes them for /completion.

#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "serve/api/answer_format.h"

namespace varve::serve {
namespace {

using nlohmann::ordered_json;

const char* StopType(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEnd:
      return "eos";
    case FinishReason::kStopText:
      return "word";
    case FinishReason::kLength:
      return "limit";
    default:
      return "none";
  }
}

// What "timings/predicted_n" or "tokens/0" names; null: nothing.
const ordered_json* FindByPath(const ordered_json& whole, std::string_view path) {
  const ordered_json* place = &whole;
  for (bool is_last = false; !is_last;) {
    const size_t slash = path.find('/');
    is_last = slash == std::string_view::npos;
    const std::string_view name = path.substr(0, slash);
    path.remove_prefix(is_last ? path.size() : slash + 1);
    if (place->is_object()) {
      const auto member = place->find(name);
      if (member == place->end()) return nullptr;
      place = &*member;
      continue;
    }
    size_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && end == name.data() + name.size();
    if (!place->is_array() || !is_index || index >= place->size()) return nullptr;
    place = &(*place)[index];
  }
  return place;
}

class LlamaFormat final : public AnswerFormat {
 public:
  LlamaFormat(const CompletionCall& call, const ServedModel& model) : call_(call), model_(model) {}

  std::vector<ordered_json> Chunks(const AnswerEvent& event) override {
    if (event.text.find('\n') != std::string::npos) with_new_line_.insert(event.choice);
    if (event.end) {
      ordered_json last = Last(event);
      last["has_new_line"] = with_new_line_.contains(event.choice);
      return {std::move(last)};
    }
    ordered_json chunk = {{"index", event.choice},
                          {"content", event.text},
                          {"tokens", ordered_json::array()},
                          {"stop", false}};
    if (event.token) {
      chunk["tokens"].push_back(event.token->token);
      if (wants_logprobs()) {
        chunk["completion_probabilities"] = ordered_json::array({Probabilities(*event.token)});
      }
    }
    return {std::move(chunk)};
  }

  std::vector<ordered_json> Close(const std::vector<CollectedAnswer>& /*answers*/) override {
    return {};
  }
  bool says_done() const override { return false; }

  ordered_json Whole(const std::vector<CollectedAnswer>& answers) override {
    ordered_json list = ordered_json::array();
    for (size_t i = 0; i < answers.size(); ++i) list.push_back(Chosen(One(i, answers[i])));
    return list.size() == 1 ? list[0] : list;
  }

 private:
  bool wants_logprobs() const { return call_.requests[0].num_logprobs >= 0; }

  // Only what was asked for, under the name that was asked for.
  ordered_json Chosen(ordered_json whole) const {
    if (call_.response_fields.empty()) return whole;
    ordered_json chosen = ordered_json::object();
    for (const std::string& name : call_.response_fields) {
      const ordered_json* found = FindByPath(whole, name);
      if (found != nullptr) chosen[name] = *found;
    }
    return chosen;
  }

  ordered_json Probability(int32_t token, float logprob) const {
    const std::string_view piece = model_.tokenizer->TokenBytes(token, true);
    return {{"id", token}, {"token", piece}, {"bytes", BytesJson(piece)}, {"logprob", logprob}};
  }
  ordered_json Probabilities(const AnswerToken& token) const {
    ordered_json entry = Probability(token.token, token.logprob);
    entry["top_logprobs"] = ordered_json::array();
    for (const TokenLogprob& best : token.best) {
      entry["top_logprobs"].push_back(Probability(best.token, best.logprob));
    }
    return entry;
  }

  // The context ended before the answer did.
  bool IsTruncated(const CompletionRequest& request, const AnswerEnd& end) const {
    return end.reason == FinishReason::kLength && end.tokens != request.max_tokens;
  }

  // What the end of an answer tells.
  ordered_json Last(const AnswerEvent& event) const {
    const AnswerEnd& end = *event.end;
    const CompletionRequest& request = call_.requests[static_cast<size_t>(event.choice)];
    const size_t per_prompt = call_.requests.size() / call_.prompt_texts.size();
    return {{"index", event.choice},
            {"content", event.text},
            {"tokens", ordered_json::array()},
            {"id_slot", end.slot},
            {"stop", true},
            {"model", model_.id},
            {"tokens_predicted", end.tokens},
            {"tokens_evaluated", end.prompt_tokens},
            {"tokens_cached", end.prompt_tokens + end.tokens - (end.tokens > 0 ? 1 : 0)},
            {"generation_settings", Settings(request)},
            {"prompt", call_.prompt_texts[static_cast<size_t>(event.choice) / per_prompt]},
            {"truncated", IsTruncated(request, end)},
            {"stop_type", StopType(end.reason)},
            {"stopping_word", end.stop_text},
            {"timings", TimingsJson(end)}};
  }

  ordered_json Settings(const CompletionRequest& request) const {
    const SamplerOptions& sampler = request.sampler;
    return {{"n_ctx", model_.context},
            {"n_predict", request.max_tokens},
            {"seed", sampler.seed},
            {"temperature", sampler.temperature},
            {"top_k", sampler.top_k},
            {"top_p", sampler.top_p},
            {"min_p", sampler.min_p},
            {"repeat_penalty", sampler.repetition_penalty},
            {"repeat_last_n", sampler.repetition_window},
            {"presence_penalty", request.edits.presence_penalty},
            {"frequency_penalty", request.edits.frequency_penalty},
            {"stop", request.stops},
            {"ignore_eos", request.ignore_end},
            {"stream", call_.stream},
            {"n_probs", request.num_logprobs < 0 ? 0 : request.num_logprobs}};
  }

  ordered_json One(size_t index, const CollectedAnswer& answer) const {
    AnswerEvent event{
        .choice = static_cast<int>(index), .text = answer.text, .token = {}, .end = answer.end};
    if (!event.end) event.end.emplace();
    ordered_json whole = Last(event);
    if (call_.return_tokens) {
      for (const AnswerToken& token : answer.tokens) whole["tokens"].push_back(token.token);
    }
    whole["has_new_line"] = answer.text.find('\n') != std::string::npos;
    if (!wants_logprobs()) return whole;
    whole["completion_probabilities"] = ordered_json::array();
    for (const AnswerToken& token : answer.tokens) {
      whole["completion_probabilities"].push_back(Probabilities(token));
    }
    return whole;
  }

  const CompletionCall& call_;
  const ServedModel& model_;
  std::set<int> with_new_line_;  // choices, in a stream
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeLlamaFormat(const CompletionCall& call,
                                              const ServedModel& model) {
  return std::make_unique<LlamaFormat>(call, model);
}

}  // namespace varve::serve
