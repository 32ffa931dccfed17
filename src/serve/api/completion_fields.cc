#include "serve/api/completion_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "serve/api/field_reader.h"

namespace varve::serve {
namespace {

using nlohmann::json;

// As `varve run` has it where nothing was said.
constexpr float kTemperature = 0.8f;
constexpr float kTopP = 0.95f;

bool IsTokenId(const json& value, int vocab_size) {
  return value.is_number_integer() && value >= 0 && value < vocab_size;
}

void ReadLimits(FieldReader& fields, const ServedModel& model, CompletionRequest* request) {
  const int64_t most = model.max_tokens > 0 ? model.max_tokens : model.context;
  int64_t max_tokens = -1;
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    fields.Int(name, -1, most, &max_tokens);
  }
  if (max_tokens < 0 && model.max_tokens > 0) max_tokens = model.max_tokens;
  request->max_tokens = max_tokens;
  fields.Texts("stop", kMaxStops, &request->stops);
  fields.Bool("ignore_eos", &request->ignore_end);
  fields.Bool("cache_prompt", &request->reuse_prefix);
  int64_t slot = -1;
  fields.Int("id_slot", -1, 1 << 20, &slot);
  request->fixed_slot = static_cast<int>(slot);
}

void ReadSampling(FieldReader& fields, uint64_t seed, CompletionRequest* request) {
  SamplerOptions& sampler = request->sampler;
  sampler.temperature = kTemperature;
  sampler.top_p = kTopP;
  fields.Float("temperature", 0, 100, &sampler.temperature);
  fields.Float("top_p", 0, 1, &sampler.top_p);
  fields.Float("min_p", 0, 1, &sampler.min_p);
  fields.Float("repeat_penalty", 0.01, 100, &sampler.repetition_penalty);
  int64_t number = 0;
  fields.Int("top_k", -1, INT32_MAX, &number);
  sampler.top_k = static_cast<int>(std::max<int64_t>(number, 0));
  number = sampler.repetition_window;
  fields.Int("repeat_last_n", 0, 1 << 20, &number);
  sampler.repetition_window = static_cast<int>(number);
  number = -1;
  fields.Int("seed", INT64_MIN, INT64_MAX, &number);
  // llama-server's word for "any" is -1, or 2^32 - 1.
  const bool is_any = number == -1 || number == UINT32_MAX;
  sampler.seed = is_any ? seed : static_cast<uint64_t>(number);
  fields.Float("presence_penalty", -2, 2, &request->edits.presence_penalty);
  fields.Float("frequency_penalty", -2, 2, &request->edits.frequency_penalty);
}

// OpenAI's {"15043": -1}; llama-server's [[15043, -1], [" word", false]], where a text is all of
// its tokens and false is never.
void ReadBias(FieldReader& fields, const ServedModel& model, CompletionRequest* request) {
  constexpr float kMost = 100;
  const json* bias = fields.Find("logit_bias");
  if (bias == nullptr || !bias->is_array()) {
    return fields.TokenNumbers("logit_bias", -kMost, kMost, &request->edits.bias);
  }
  for (const json& pair : *bias) {
    const bool is_pair =
        pair.is_array() && pair.size() == 2 && (pair[1].is_number() || pair[1] == false);
    const bool is_id = is_pair && IsTokenId(pair[0], model.vocab_size);
    const float value = is_pair && pair[1].is_number() ? pair[1].get<float>() : -kMost;
    if (!is_pair || !(is_id || pair[0].is_string()) || !(std::abs(value) <= kMost)) {
      return fields.Fail(
          "logit_bias: not pairs of a token id or a text, and a number of -100 … 100",
          "logit_bias");
    }
    const std::vector<int32_t> ids =
        is_id ? std::vector{pair[0].get<int32_t>()}
              : model.tokenizer->Encode(pair[0].get_ref<const std::string&>(),
                                        {.add_special = false, .parse_special = true});
    for (const int32_t id : ids) request->edits.bias[id] = value;
  }
}

// What would change the answer and is not there must not be ignored.
void RefuseGrammars(FieldReader& fields) {
  for (const char* name : {"grammar", "json_schema"}) {
    const json* field = fields.Find(name);
    if (field != nullptr && !(field->is_string() && field->get<std::string>().empty()))
      fields.Fail(fmt::format("{}: there are no grammars", name), name);
  }
  const json* format = fields.Find("response_format");
  if (format == nullptr) return;
  if (!format->is_object() || format->value("type", json()) != "text") {
    fields.Fail("response_format: only {\"type\": \"text\"}; there are no grammars",
                "response_format");
  }
}

void ReadLogprobs(FieldReader& fields, CompletionRequest* request) {
  int64_t count = -1;
  const json* logprobs = fields.Find("logprobs");
  if (logprobs != nullptr && logprobs->is_boolean()) {
    if (logprobs->get<bool>()) count = 0;
    int64_t best = 0;
    fields.Int("top_logprobs", 0, kMaxLogprobs, &best);
    if (count == 0) count = best;
  } else {
    fields.Int("logprobs", 0, kMaxLogprobs, &count);
  }
  int64_t n_probs = 0;
  fields.Int("n_probs", 0, kMaxLogprobs, &n_probs);
  if (n_probs > 0) count = n_probs;
  request->num_logprobs = static_cast<int>(count);
}

// All but the prompt, and how many choices each prompt gets.
int64_t ReadCommon(FieldReader& fields, const ServedModel& model, std::string_view tenant,
                   uint64_t seed, CompletionCall* call, CompletionRequest* request) {
  ReadLimits(fields, model, request);
  ReadSampling(fields, seed, request);
  ReadBias(fields, model, request);
  RefuseGrammars(fields);
  ReadLogprobs(fields, request);
  fields.Bool("stream", &call->stream);
  fields.Bool("return_tokens", &call->return_tokens);
  fields.Bool("echo", &call->echo);
  fields.Texts("response_fields", kMaxResponseFields, &call->response_fields);
  if (const json* options = fields.Find("stream_options"); options != nullptr) {
    if (options->is_object()) {
      FieldReader inner(*options);
      inner.Bool("include_usage", &call->include_usage);
      if (!inner.error().ok()) fields.Fail(inner.error().message, "stream_options");
    } else {
      fields.Fail("stream_options: not an object", "stream_options");
    }
  }
  std::string salt;
  fields.Text("cache_salt", &salt);
  request->tenant = TenantOf(tenant, salt);
  int64_t choices = 1;
  fields.Int("n", 1, kMaxChoices, &choices);
  return choices;
}

// A text, or a list of texts and token ids.
ApiError PromptTokens(const json& given, const ServedModel& model, std::vector<int32_t>* tokens) {
  const json& prompt = given.is_object() ? given["prompt_string"] : given;
  EncodeOptions options{.add_special = true, .parse_special = true};
  if (prompt.is_string()) {
    *tokens = model.tokenizer->Encode(prompt.get_ref<const std::string&>(), options);
    if (tokens->empty() && model.tokenizer->bos() >= 0) tokens->push_back(model.tokenizer->bos());
  } else {
    for (const json& part : prompt) {
      if (part.is_string()) {
        options.add_special = tokens->empty();
        const std::vector<int32_t> more =
            model.tokenizer->Encode(part.get_ref<const std::string&>(), options);
        tokens->insert(tokens->end(), more.begin(), more.end());
      } else if (IsTokenId(part, model.vocab_size)) {
        tokens->push_back(part.get<int32_t>());
      } else {
        return InvalidRequest(fmt::format("prompt: element {} is neither a text nor a token id of "
                                          "0 … {}",
                                          tokens->size(), model.vocab_size - 1),
                              "prompt");
      }
    }
  }
  if (!tokens->empty()) return {};
  return InvalidRequest("prompt: no tokens, at least 1 is needed", "prompt");
}

ApiError CheckLength(size_t num_tokens, const ServedModel& model) {
  if (static_cast<int64_t>(num_tokens) < model.context) return {};
  ApiError error = InvalidRequest(
      fmt::format("the prompt of {} tokens exceeds the available context size: {} with its answer",
                  num_tokens, model.context),
      "prompt");
  error.type = "exceed_context_size_error";
  error.figures = {{"n_prompt_tokens", static_cast<int64_t>(num_tokens)}, {"n_ctx", model.context}};
  return error;
}

void AddChoices(int64_t num_choices, CompletionRequest request, CompletionCall* call) {
  for (int64_t i = 0; i < num_choices; ++i) {
    request.choice = static_cast<int>(call->requests.size());
    call->requests.push_back(request);
    ++request.sampler.seed;
  }
}

}  // namespace

// Lengths stand before texts, so that no two pairs are the same.
std::string TenantOf(std::string_view key, std::string_view salt) {
  return fmt::format("{}:{}{}:{}", key.size(), key, salt.size(), salt);
}

ApiError ReadCompletion(const json& body, const ServedModel& model, std::string_view tenant,
                        uint64_t seed, CompletionCall* call) {
  FieldReader fields(body);
  CompletionRequest request;
  const int64_t choices = ReadCommon(fields, model, tenant, seed, call, &request);
  if (!fields.error().ok()) return fields.error();
  const json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return InvalidRequest("prompt: missing", "prompt");
  // llama-server's {"prompt_string": …}; what it has beside that is images.
  const auto is_object = [](const json& part) {
    return part.is_object() && part.value("prompt_string", json()).is_string() &&
           !part.contains("multimodal_data");
  };
  if (!prompt->is_string() && !prompt->is_array() && !is_object(*prompt)) {
    return InvalidRequest("prompt: neither a text nor a list", "prompt");
  }
  // A list of texts or of lists is several prompts; one with a number in it is one.
  std::vector<const json*> prompts = {prompt};
  const auto is_prompt = [&](const json& part) {
    return part.is_string() || part.is_array() || is_object(part);
  };
  if (prompt->is_array() && std::all_of(prompt->begin(), prompt->end(), is_prompt)) {
    prompts.clear();
    for (const json& one : *prompt) prompts.push_back(&one);
  }
  if (static_cast<int64_t>(prompts.size()) * choices > kMaxChoices) {
    return InvalidRequest(fmt::format("prompt: {} prompts of n = {} answers, the limit is {}",
                                      prompts.size(), choices, kMaxChoices),
                          "prompt");
  }
  for (const json* one : prompts) {
    request.prompt.clear();
    ApiError error = PromptTokens(*one, model, &request.prompt);
    if (error.ok()) error = CheckLength(request.prompt.size(), model);
    if (!error.ok()) return error;
    call->prompt_texts.push_back(one->is_string() ? one->get<std::string>() : "");
    AddChoices(choices, request, call);
  }
  if (call->requests.empty()) return InvalidRequest("prompt: an empty list", "prompt");
  return {};
}

ApiError ReadChat(const json& body, const ServedModel& model, std::string_view tenant,
                  uint64_t seed, CompletionCall* call) {
  FieldReader fields(body);
  CompletionRequest request;
  // A last message that goes on is no beginning: its first word has a blank before it.
  request.is_turn = body.value("continue_final_message", json()) != true;
  const int64_t choices = ReadCommon(fields, model, tenant, seed, call, &request);
  if (!fields.error().ok()) return fields.error();
  std::string text;
  ApiError error = ChatTokens(body, model, &request.prompt, &text);
  if (error.ok()) error = CheckLength(request.prompt.size(), model);
  if (!error.ok()) return error;
  AddChoices(choices, std::move(request), call);
  return {};
}

}  // namespace varve::serve
