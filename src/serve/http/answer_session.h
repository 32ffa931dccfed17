// AnswerSession: one request on its way to the engine and its answers on their way back, whole or
// as a stream of server-sent events. One thread.

#ifndef VARVE_SERVE_HTTP_ANSWER_SESSION_H_
#define VARVE_SERVE_HTTP_ANSWER_SESSION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/timer.h"
#include "serve/api/answer_format.h"
#include "serve/engine/answer_channel.h"
#include "serve/engine/engine.h"
#include "serve/http/client_socket.h"

namespace varve::serve {

class AnswerSession {
 public:
  // Submits the call's requests.
  AnswerSession(Engine& engine, std::unique_ptr<CompletionCall> call,
                std::unique_ptr<AnswerFormat> format, const ClientSocket& client);
  // Whatever is not answered is cancelled.
  ~AnswerSession();
  AnswerSession(const AnswerSession&) = delete;
  AnswerSession& operator=(const AnswerSession&) = delete;

  // Waits for the first event: an answer that fails at once has an HTTP status of its own, even if
  // it is a stream. Whatever takes longer than a moment is no error of that kind.
  ApiError WaitForRefusal();
  // Waits for all answers. False: the client has gone.
  bool Collect();
  // Sends all events as they come; `write` is false once the client has gone, and so is the result.
  bool Stream(const std::function<bool(const std::string&)>& write);

  // The first error among the answers.
  ApiError error() const;
  nlohmann::ordered_json Whole() { return format_->Whole(answers_); }
  const std::vector<CollectedAnswer>& answers() const { return answers_; }
  double seconds() const { return timer_.seconds(); }

 private:
  // The next event, waited for while somebody listens.
  std::optional<AnswerEvent> Next();
  void Note(const AnswerEvent& event);
  bool all_ended() const { return num_ended_ == answers_.size(); }

  std::unique_ptr<CompletionCall> call_;
  std::unique_ptr<AnswerFormat> format_;
  ClientSocket client_;
  std::shared_ptr<AnswerChannel> channel_;
  std::vector<CollectedAnswer> answers_;
  std::vector<AnswerEvent> pending_;  // that WaitForRefusal has taken
  size_t num_ended_ = 0;
  Timer timer_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_HTTP_ANSWER_SESSION_H_
