// Speech: /v1/audio/transcriptions and /v1/audio/translations, forms as OpenAI's API has them.

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/audio/audio_file.h"
#include "runtime/whisper/transcript_format.h"
#include "serve/http/client_socket.h"
#include "serve/http/route_context.h"
#include "serve/speech/speech_service.h"

namespace varve::serve {
namespace {

using nlohmann::ordered_json;

constexpr double kTemperatureStep = 0.2;

// A field of a form; empty: not there.
std::string FormField(const httplib::Request& request, const char* name) {
  return request.has_file(name) ? request.get_file_value(name).content : std::string();
}

// A temperature is tried first, then those above it, where a window fails.
ApiError ReadTemperatures(const httplib::Request& request, TranscribeOptions* options) {
  const std::string text = FormField(request, "temperature");
  if (text.empty()) return {};
  char* end = nullptr;
  const double first = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(first >= 0 && first <= 1)) {
    return InvalidRequest(fmt::format("temperature: {} is not in 0 … 1", Quoted(text)),
                          "temperature");
  }
  options->temperatures.clear();
  for (int i = 0; first + i * kTemperatureStep <= 1.0 + 1e-6; ++i)
    options->temperatures.push_back(first + i * kTemperatureStep);
  return {};
}

enum class Answer { kJson, kVerboseJson, kText, kSrt, kVtt };

ApiError ReadAnswer(const httplib::Request& request, Answer* answer) {
  const std::string name = FormField(request, "response_format");
  if (name.empty() || name == "json") {
    *answer = Answer::kJson;
  } else if (name == "verbose_json") {
    *answer = Answer::kVerboseJson;
  } else if (name == "text") {
    *answer = Answer::kText;
  } else if (name == "srt") {
    *answer = Answer::kSrt;
  } else if (name == "vtt") {
    *answer = Answer::kVtt;
  } else {
    return InvalidRequest(
        fmt::format("response_format: {} is none of json, text, srt, vtt, verbose_json",
                    Quoted(name)),
        "response_format");
  }
  return {};
}

// Our JSON has a transcript's words in its segments; OpenAI's has them beside.
ordered_json VerboseJson(const Transcript& transcript, bool translate, bool words) {
  ordered_json body =
      ordered_json::parse(FormatTranscript(transcript, TranscriptFormat::kJson), nullptr, false);
  ordered_json all_words = ordered_json::array();
  for (ordered_json& segment : body["segments"]) {
    for (const ordered_json& word : segment.value("words", ordered_json::array()))
      all_words.push_back(word);
    segment.erase("words");
  }
  body["task"] = translate ? "translate" : "transcribe";
  if (words) body["words"] = all_words;
  return body;
}

void SendTranscript(const Transcript& transcript, Answer answer, bool translate, bool words,
                    httplib::Response& response) {
  const auto send_text = [&](TranscriptFormat format, const char* type) {
    response.set_content(FormatTranscript(transcript, format), type);
  };
  switch (answer) {
    case Answer::kText:
      return send_text(TranscriptFormat::kText, "text/plain; charset=utf-8");
    case Answer::kSrt:
      return send_text(TranscriptFormat::kSrt, "application/x-subrip; charset=utf-8");
    case Answer::kVtt:
      return send_text(TranscriptFormat::kVtt, "text/vtt; charset=utf-8");
    case Answer::kVerboseJson:
      return SendJson(response, VerboseJson(transcript, translate, words));
    case Answer::kJson:
      return SendJson(response, {{"text", VerboseJson(transcript, translate, false)["text"]}});
  }
}

void TranscribeSound(RouteContext& context, bool translate, const httplib::Request& request,
                     httplib::Response& response) {
  SpeechService* speech = context.options.speech;
  if (speech == nullptr) {
    return SendError(
        response,
        {501, "not_supported_error", "no speech model: start the server with --speech MODEL", {}});
  }
  if (!request.is_multipart_form_data() || !request.has_file("file")) {
    return SendError(response,
                     InvalidRequest("file: missing; send a form (multipart/form-data)", "file"));
  }
  TranscribeOptions options;
  options.language = FormField(request, "language");
  options.prompt = FormField(request, "prompt");
  options.translate = translate;
  options.words = FormField(request, "timestamp_granularities[]") == "word";
  Answer answer = Answer::kJson;
  ApiError error = ReadTemperatures(request, &options);
  if (error.ok()) error = ReadAnswer(request, &answer);
  if (!error.ok()) return SendError(response, error);
  const httplib::MultipartFormData file = request.get_file_value("file");
  const Result<std::vector<float>> samples = ReadSpeech(
      std::as_bytes(std::span(file.content)), file.filename.empty() ? "file" : file.filename);
  if (!samples.ok()) return SendError(response, InvalidRequest(samples.status().message(), "file"));
  const ClientSocket client(request.remote_addr, request.remote_port);
  const Result<Transcript> transcript = speech->Transcribe(
      *samples, options, [&] { return !client.is_closed() && !context.is_stopping; });
  if (!transcript.ok()) return SendError(response, FromStatus(transcript.status()));
  SendTranscript(*transcript, answer, translate, options.words, response);
}

}  // namespace

void AddSpeechRoutes(httplib::Server& server, RouteContext& context) {
  const auto add = [&](const char* path, bool translate) {
    server.Post(path, [&context, translate](const auto& request, auto& response) {
      TranscribeSound(context, translate, request, response);
    });
  };
  add("/v1/audio/transcriptions", false);
  add("/v1/audio/translations", true);
}

}  // namespace varve::serve
