#include "serve/http/answer_session.h"

#include <utility>

#include <fmt/format.h>

#include "serve/api/json_text.h"

namespace varve::serve {
namespace {

constexpr std::chrono::milliseconds kRefusalMoment(100);
constexpr std::chrono::milliseconds kLookInterval(100);  // whether the client is still there

std::string ServerEvent(const nlohmann::ordered_json& chunk) {
  return fmt::format("data: {}\n\n", JsonText(chunk));
}

}  // namespace

AnswerSession::AnswerSession(Engine& engine, std::unique_ptr<CompletionCall> call,
                             std::unique_ptr<AnswerFormat> format, const ClientSocket& client)
    : call_(std::move(call)),
      format_(std::move(format)),
      client_(client),
      channel_(std::make_shared<AnswerChannel>()),
      answers_(call_->requests.size()) {
  for (const CompletionRequest& request : call_->requests) engine.Submit(request, channel_);
}

AnswerSession::~AnswerSession() {
  if (!all_ended()) channel_->Cancel();
}

ApiError AnswerSession::WaitForRefusal() {
  std::optional<AnswerEvent> first = channel_->Next(kRefusalMoment);
  if (!first) return {};
  const bool is_refused = first->end && !first->end->error.ok();
  ApiError error = is_refused ? FromStatus(first->end->error) : ApiError();
  pending_.push_back(*std::move(first));
  return error;
}

std::optional<AnswerEvent> AnswerSession::Next() {
  if (!pending_.empty()) {
    AnswerEvent event = std::move(pending_.back());
    pending_.pop_back();
    return event;
  }
  for (;;) {
    std::optional<AnswerEvent> event = channel_->Next(kLookInterval);
    if (event) return event;
    if (client_.is_closed()) return std::nullopt;
  }
}

void AnswerSession::Note(const AnswerEvent& event) {
  CollectedAnswer& answer = answers_[static_cast<size_t>(event.choice)];
  answer.text += event.text;
  if (event.token) answer.tokens.push_back(*event.token);
  if (!event.end) return;
  answer.end = event.end;
  ++num_ended_;
}

bool AnswerSession::Collect() {
  while (!all_ended()) {
    const std::optional<AnswerEvent> event = Next();
    if (!event || client_.is_closed()) return false;
    Note(*event);
  }
  return true;
}

ApiError AnswerSession::error() const {
  for (const CollectedAnswer& answer : answers_) {
    if (answer.end && !answer.end->error.ok()) return FromStatus(answer.end->error);
  }
  return {};
}

bool AnswerSession::Stream(const std::function<bool(const std::string&)>& write) {
  const auto write_all = [&](const std::vector<nlohmann::ordered_json>& chunks) {
    std::string text;
    for (const auto& chunk : chunks) text += ServerEvent(chunk);
    return text.empty() || write(text);
  };
  if (!write_all(format_->Open())) return false;
  while (!all_ended()) {
    const std::optional<AnswerEvent> event = Next();
    if (!event) return false;
    Note(*event);
    if (event->end && !event->end->error.ok()) {
      return write(fmt::format("data: {}\n\n", ErrorJson(FromStatus(event->end->error))));
    }
    if (!write_all(format_->Chunks(*event)) || client_.is_closed()) return false;
  }
  if (!write_all(format_->Close(answers_))) return false;
  return !format_->says_done() || write("data: [DONE]\n\n");
}

}  // namespace varve::serve
