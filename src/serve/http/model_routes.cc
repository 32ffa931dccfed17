// What the model is, and its tokens: /v1/models, /props, /tokenize, /detokenize, /apply-template.

#include <fmt/format.h>

#include "base/utf8.h"
#include "serve/api/answer_format.h"
#include "serve/api/completion_fields.h"
#include "serve/api/field_reader.h"
#include "serve/http/route_context.h"
#include "serve/speech/speech_service.h"

namespace varve::serve {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json ModelsJson(const ServedModel& model, const SpeechService* speech) {
  const ordered_json entry = {{"id", model.id},
                              {"object", "model"},
                              {"created", model.started_s},
                              {"owned_by", "varve"},
                              {"meta",
                               {{"n_vocab", model.vocab_size},
                                {"n_ctx", model.context},
                                {"n_ctx_train", model.trained_context}}}};
  ordered_json entries = ordered_json::array({entry});
  if (speech != nullptr) {
    entries.push_back({{"id", speech->id()},
                       {"object", "model"},
                       {"created", model.started_s},
                       {"owned_by", "varve"}});
  }
  return {{"object", "list"}, {"data", entries}};
}

ordered_json PropsJson(RouteContext& context) {
  const EngineSnapshot snapshot = context.engine.Snapshot();
  const ServedModel& model = context.model;
  return {{"default_generation_settings", {{"n_ctx", model.context}}},
          {"total_slots", snapshot.num_slots},
          {"model_path", model.path},
          {"model_alias", model.id},
          {"chat_format", model.chat_format},
          {"build_info", "varve"},
          {"kv_plan", snapshot.plan},
          {"page_tokens", snapshot.page_tokens},
          {"cache_bytes", snapshot.bytes_budget},
          {"prefix_cache", snapshot.shares_prefixes ? "on" : snapshot.prefix_note}};
}

// A piece as text, or as a list of bytes where it is half a character.
ordered_json PieceJson(std::string_view piece) {
  if (IsValidUtf8(piece)) return piece;
  return BytesJson(piece);
}

void Tokenize(const ServedModel& model, const httplib::Request& request,
              httplib::Response& response) {
  json body;
  ApiError error = ParseBody(request.body, &body);
  if (!error.ok()) return SendError(response, error);
  FieldReader fields(body);
  std::string content;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
  fields.Text("content", &content);
  fields.Bool("add_special", &add_special);
  fields.Bool("parse_special", &parse_special);
  fields.Bool("with_pieces", &with_pieces);
  if (!fields.error().ok()) return SendError(response, fields.error());
  ordered_json tokens = ordered_json::array();
  for (const int32_t id : model.tokenizer->Encode(
           content, {.add_special = add_special, .parse_special = parse_special})) {
    if (!with_pieces) {
      tokens.push_back(id);
      continue;
    }
    tokens.push_back({{"id", id}, {"piece", PieceJson(model.tokenizer->TokenBytes(id, true))}});
  }
  SendJson(response, {{"tokens", tokens}});
}

void Detokenize(const ServedModel& model, const httplib::Request& request,
                httplib::Response& response) {
  json body;
  const ApiError error = ParseBody(request.body, &body);
  if (!error.ok()) return SendError(response, error);
  const json tokens = body.value("tokens", json::array());
  if (!tokens.is_array()) {
    return SendError(response, InvalidRequest("tokens: not a list", "tokens"));
  }
  std::vector<int32_t> ids;
  for (const json& token : tokens) {
    if (!token.is_number_integer() || token < 0 || token >= model.vocab_size) {
      return SendError(response, InvalidRequest(fmt::format("tokens: element {} is no id of 0 … {}",
                                                            ids.size(), model.vocab_size - 1),
                                                "tokens"));
    }
    ids.push_back(token.get<int32_t>());
  }
  SendJson(response, {{"content", model.tokenizer->Decode(ids, true)}});
}

// Answers with what `format` makes of a chat's prompt, as ids and as text.
template <typename Format>
void SendPrompt(const ServedModel& model, const httplib::Request& request,
                httplib::Response& response, const Format& format) {
  json body;
  ApiError error = ParseBody(request.body, &body);
  std::vector<int32_t> tokens;
  std::string text;
  if (error.ok()) error = ChatTokens(body, model, &tokens, &text);
  if (!error.ok()) return SendError(response, error);
  SendJson(response, format(tokens, text));
}

void ApplyTemplate(const ServedModel& model, const httplib::Request& request,
                   httplib::Response& response) {
  SendPrompt(model, request, response, [](const auto&, const std::string& text) {
    return json{{"prompt", text}};
  });
}

// How long the prompt of a chat would be.
void CountTokens(const ServedModel& model, const httplib::Request& request,
                 httplib::Response& response) {
  SendPrompt(model, request, response, [](const auto& tokens, const std::string&) {
    return json{{"input_tokens", tokens.size()}};
  });
}

}  // namespace

void AddModelRoutes(httplib::Server& server, RouteContext& context) {
  const ServedModel& model = context.model;
  const auto models = [&context](const auto&, auto& response) {
    SendJson(response, ModelsJson(context.model, context.options.speech));
  };
  server.Get("/v1/models", models);
  server.Get("/models", models);
  server.Get("/props",
             [&context](const auto&, auto& response) { SendJson(response, PropsJson(context)); });
  server.Post("/tokenize", [&model](const auto& request, auto& response) {
    Tokenize(model, request, response);
  });
  server.Post("/detokenize", [&model](const auto& request, auto& response) {
    Detokenize(model, request, response);
  });
  for (const char* path : {"/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"}) {
    server.Post(path, [&model](const auto& request, auto& response) {
      CountTokens(model, request, response);
    });
  }
  server.Post("/apply-template", [&model](const auto& request, auto& response) {
    ApplyTemplate(model, request, response);
  });
}

}  // namespace varve::serve
