// Reads any bytes as the body of a request, for every route that generates. What is refused has a
// status and a message; what is taken has prompts within the context, options that the sampler
// takes, and can be answered in its format.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "serve/api/answer_format.h"
#include "serve/api/field_reader.h"
#include "serve/api/json_text.h"
#include "tests/byte_tokenizer.h"

namespace {

using varve::serve::AnswerEnd;
using varve::serve::AnswerEvent;
using varve::serve::AnswerFormat;
using varve::serve::AnswerToken;
using varve::serve::ApiError;
using varve::serve::CollectedAnswer;
using varve::serve::CompletionCall;
using varve::serve::CompletionRequest;
using varve::serve::ErrorJson;
using varve::serve::JsonText;
using varve::serve::kMaxChoices;
using varve::serve::MakeChatFormat;
using varve::serve::MakeLlamaFormat;
using varve::serve::MakeTextFormat;
using varve::serve::ParseBody;
using varve::serve::ReadChat;
using varve::serve::ReadCompletion;
using varve::serve::ServedModel;

void Expect(const char* what, bool holds) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void Answer(const CompletionCall& call, AnswerFormat& format) {
  std::vector<CollectedAnswer> answers(call.requests.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    AnswerEvent event{.choice = static_cast<int>(i),
                      .text = "\xe2\x82",
                      .token = AnswerToken(),
                      .end = AnswerEnd()};
    answers[i] = {event.text, {*event.token}, event.end};
    for (const auto& chunk : format.Chunks(event)) Expect("a chunk", !JsonText(chunk).empty());
  }
  for (const auto& chunk : format.Open()) Expect("a chunk", !JsonText(chunk).empty());
  for (const auto& chunk : format.Close(answers)) Expect("a chunk", !JsonText(chunk).empty());
  Expect("an answer", !JsonText(format.Whole(answers)).empty());
}

void Check(const ApiError& error, const CompletionCall& call, const ServedModel& model) {
  if (!error.ok()) {
    Expect("a status", error.http_status >= 400 && error.http_status < 500);
    Expect("a message", error.message.size() > 6 && !ErrorJson(error).empty());
    return;
  }
  Expect("a request", !call.requests.empty() && call.requests.size() <= kMaxChoices);
  for (const CompletionRequest& request : call.requests) {
    Expect("a prompt",
           !request.prompt.empty() && static_cast<int64_t>(request.prompt.size()) < model.context);
    for (const int32_t token : request.prompt)
      Expect("a token", token >= 0 && token < model.vocab_size);
    Expect("a limit", request.max_tokens >= -1 && request.max_tokens <= model.context);
    Expect("sampling", varve::CheckSamplerOptions(request.sampler).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const varve::ByteTokenizer tokenizer;
  ServedModel model;
  model.tokenizer = &tokenizer;
  static const varve::ChatTemplate chatml = *varve::ChatTemplate::BuiltIn("chatml", {});
  model.chat = size % 2 == 0 ? &chatml : nullptr;
  model.context = 300;
  model.vocab_size = tokenizer.vocab_size();
  nlohmann::json body;
  const ApiError no_object = ParseBody({reinterpret_cast<const char*>(data), size}, &body);
  if (!no_object.ok()) return 0;
  CompletionCall text;
  const ApiError text_error = ReadCompletion(body, model, "", 1, &text);
  Check(text_error, text, model);
  CompletionCall chat;
  const ApiError chat_error = ReadChat(body, model, "", 1, &chat);
  Check(chat_error, chat, model);
  if (chat_error.ok()) Answer(chat, *MakeChatFormat(chat, model, "id", 0));
  if (!text_error.ok()) return 0;
  Answer(text, *MakeTextFormat(text, model, "id", 0));
  Answer(text, *MakeLlamaFormat(text, model));
  return 0;
}
