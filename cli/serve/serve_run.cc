// `varve serve`: from options to a running server, and its end.

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "cli/available_memory.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/run/run_prompt.h"
#include "cli/serve/serve_options.h"
#include "runtime/tokenizer/chat_template.h"
#include "serve/http/self_check.h"
#include "serve/speech/speech_service.h"

namespace varve::cli {
namespace {

using serve::BatchEngine;
using serve::Engine;
using serve::HttpServer;
using serve::ServedModel;

constexpr uint64_t kLeastCacheBytes = uint64_t{64} << 20;
// The messages of a chat, one below the other.
constexpr const char* kPlainChat = "plain";
constexpr uint64_t kSoundBytes = uint64_t{64} << 20;
constexpr uint64_t kDiskBytes = uint64_t{4} << 30;

// --chat NAME or @FILE, or the model's own. None: "plain", or a file without one.
Result<std::optional<ChatTemplate>> TemplateToServe(const ServeOptions& options,
                                                    const LoadedModel& model) {
  if (options.chat_format == kPlainChat) return std::optional<ChatTemplate>();
  Result<ChatTemplate> found = FindChatTemplate(options.chat_format, model);
  if (found.ok()) return std::optional(*std::move(found));
  if (!options.chat_format.empty()) return found.status();
  WriteNote(
      fmt::format("{}: {}; the messages of a chat are text to continue (--chat names a "
                  "format)\n",
                  model.name, found.status().message()));
  return std::optional<ChatTemplate>();
}

Status ReadKeys(const std::string& path, std::vector<std::string>* keys) {
  if (path.empty()) return Status();
  VARVE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    if (end > begin) keys->push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!keys->empty()) return Status();
  return InvalidArgument(fmt::format("--api-key-file \"{}\": no key in it", path));
}

Result<serve::EngineOptions> MakeEngineOptions(const ServeOptions& options,
                                               const DecoderModel& model) {
  if (options.ctx > model.context()) {
    return InvalidArgument(
        fmt::format("--ctx {} > {}, the context of the model", options.ctx, model.context()));
  }
  serve::EngineOptions engine;
  VARVE_ASSIGN_OR_RETURN(engine.plan, ReadKvOption(options.plan));
  engine.cache_bytes = options.cache_bytes;
  if (engine.cache_bytes == 0) engine.cache_bytes = std::max(UsableBytes() / 4, kLeastCacheBytes);
  VARVE_RETURN_IF_ERROR(CheckMemory("--cache-bytes: pages", engine.cache_bytes));
  engine.num_slots = options.slots;
  engine.context = options.ctx;
  engine.chunk_tokens = options.chunk_tokens;
  engine.max_waiting = options.max_waiting;
  engine.reuse_prefixes = options.reuse_prefixes;
  engine.reuse_generated = options.reuse_generated;
  engine.idle_s = options.idle_s;
  engine.spill_s = options.spill_s;
  if (engine.spill_s > 0 && options.tiers.empty()) {
    return InvalidArgument(fmt::format(
        "--spill {}: there is nowhere to spill to; give --disk-cache DIR or --redis URL",
        engine.spill_s));
  }
  engine.tier_writes =
      options.tier_writes == "leaving" ? serve::TierWrites::kLeaving : serve::TierWrites::kComputed;
  engine.tiers = options.tiers;
  if (engine.tiers.disk_bytes == 0) engine.tiers.disk_bytes = kDiskBytes;
  engine.eviction =
      options.eviction == "lru" ? serve::EvictionOrder::kLru : serve::EvictionOrder::kValue;
  engine.precision = FindPrecision(options.precision).value_or(FastestPrecision());
  return engine;
}

std::string ModelId(const ServeOptions& options, const LoadedModel& model) {
  if (!options.alias.empty()) return options.alias;
  if (!options.model.empty()) return std::filesystem::path(options.model).stem().string();
  return model.model->name().empty() ? "varve" : model.model->name();
}

// --speech: a second model, with threads and caches of its own. Null: none was asked for.
Result<std::unique_ptr<serve::SpeechService>> MakeSpeech(const ServeOptions& options) {
  if (options.speech.empty()) return std::unique_ptr<serve::SpeechService>();
  serve::SpeechSettings settings;
  settings.id = std::filesystem::path(options.speech).stem().string();
  VARVE_ASSIGN_OR_RETURN(settings.plan,
                         ReadKvOption(options.speech_plan.empty() ? "f16" : options.speech_plan));
  settings.precision = FindPrecision(options.precision).value_or(FastestPrecision());
  settings.threads = options.threads;
  VARVE_ASSIGN_OR_RETURN(auto model, WhisperModel::Load(options.speech));
  return serve::SpeechService::Create(std::move(model), settings);
}

// A line of the log for people: what a JSON line says, without its punctuation.
void LogText(const std::string& line) {
  const nlohmann::ordered_json fields = nlohmann::ordered_json::parse(line, nullptr, false);
  std::string text;
  for (const auto& [name, value] : fields.items()) {
    const std::string shown = value.is_number_float() ? fmt::format("{:.3f}", value.get<double>())
                              : value.is_string()     ? value.get<std::string>()
                                                      : value.dump();
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, shown);
  }
  WriteNote(text + "\n");
}

// Serves until a signal comes, then lets what is under way end.
void ServeUntilSignal(HttpServer& server, Engine& engine, int stop_seconds) {
  const InterruptScope scope;
  std::thread listener([&server] { server.Run(); });
  while (!InterruptScope::interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  WriteNote(fmt::format("varve: stopping; answers under way have {} s\n", stop_seconds));
  // The listener first: it waits for its connections, which wait for the engine.
  std::thread stopper([&server] { server.Stop(); });
  engine.Stop(std::chrono::seconds(stop_seconds));
  stopper.join();
  listener.join();
}

Status CheckAndEnd(HttpServer& server, Engine& engine, const ServeOptions& options) {
  std::thread listener([&server] { server.Run(); });
  const std::string key = options.http.api_keys.empty() ? "" : options.http.api_keys[0];
  Status checked = serve::CheckServer(options.http.host, server.port(), key,
                                      [](const std::string& line) { fmt::print("{}\n", line); });
  engine.Stop(std::chrono::milliseconds(0));
  server.Stop();
  listener.join();
  return checked;
}

}  // namespace

Status RunServe(ServeOptions options) {
  VARVE_RETURN_IF_ERROR(ReadKeys(options.key_file, &options.http.api_keys));
  VARVE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.model));
  VARVE_ASSIGN_OR_RETURN(const serve::EngineOptions engine_options,
                         MakeEngineOptions(options, *model.model));
  VARVE_ASSIGN_OR_RETURN(const std::optional<ChatTemplate> chat, TemplateToServe(options, model));
  const std::unique_ptr<Executor> executor = MakeThreadPool(options.threads);
  VARVE_RETURN_IF_ERROR(RepackModel(options.repack, *executor, model.model));
  VARVE_ASSIGN_OR_RETURN(
      std::unique_ptr<BatchEngine> batch,
      BatchEngine::Create(model.model, *model.tokenizer, *executor, engine_options));
  Engine engine(std::move(batch));
  const ServedModel served{.id = ModelId(options, model),
                           .path = options.model,
                           .tokenizer = model.tokenizer.get(),
                           .chat = chat ? &*chat : nullptr,
                           .chat_format = !chat                         ? kPlainChat
                                          : options.chat_format.empty() ? "template"
                                                                        : options.chat_format,
                           .context = engine.context(),
                           .trained_context = model.model->context(),
                           .vocab_size = model.model->vocab_size(),
                           .started_s = std::chrono::duration_cast<std::chrono::seconds>(
                                            std::chrono::system_clock::now().time_since_epoch())
                                            .count(),
                           .max_tokens = options.max_tokens};
  VARVE_ASSIGN_OR_RETURN(const std::unique_ptr<serve::SpeechService> speech, MakeSpeech(options));
  options.http.speech = speech.get();
  // Sounds are larger than messages.
  if (speech != nullptr)
    options.http.max_body_bytes = std::max(options.http.max_body_bytes, kSoundBytes);
  if (options.check) options.http.port = 0;
  if (options.log == "json") options.http.log = [](const auto& line) { WriteNote(line + "\n"); };
  if (options.log == "text") options.http.log = LogText;
  HttpServer server(engine, served, options.http);
  VARVE_RETURN_IF_ERROR(server.Bind());
  const serve::EngineSnapshot snapshot = engine.Snapshot();
  WriteNote(fmt::format(
      "varve: {} on http://{}:{} | {} slots, context {}, plan {}, {} for pages, prefixes {}\n",
      served.id, options.http.host, server.port(), options.slots, served.context, options.plan,
      HumanBytes(static_cast<double>(snapshot.bytes_budget)),
      snapshot.shares_prefixes ? "shared" : "not shared: " + snapshot.prefix_note));
  if (options.check) return CheckAndEnd(server, engine, options);
  ServeUntilSignal(server, engine, options.stop_seconds);
  return Status();
}

}  // namespace varve::cli
