// `varve serve`: the options of the server.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/serve/serve_options.h"

namespace {

using varve::cli::ServeOptions;

void AddBytes(CLI::App* command, const std::string& name, uint64_t* bytes,
              const std::string& help) {
  command->add_option_function<std::string>(
      name,
      [name, bytes](const std::string& text) {
        varve::Result<int64_t> parsed = varve::cli::ParseByteSize(name, text);
        if (!parsed.ok()) throw CLI::ValidationError(parsed.status().message());
        *bytes = static_cast<uint64_t>(*parsed);
      },
      help);
}

void AddNetworkOptions(CLI::App* command, ServeOptions* options) {
  varve::serve::HttpOptions& http = options->http;
  command->add_option("--host", http.host, "Address to listen on; 0.0.0.0 is every one")
      ->capture_default_str();
  command->add_option("--port", http.port, "Port; 0: any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command
      ->add_option("--api-key", http.api_keys,
                   "Key that requests must carry; may be given several times. Keys share no pages")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY");
  command->add_option("--api-key-file", options->key_file, "Such keys, a line each")
      ->type_name("FILE");
  AddBytes(command, "--max-body", &http.max_body_bytes, "Largest request (default: 8MiB)");
  command->add_option("--max-connections", http.max_connections, "Connections served at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--cors-origins", http.cors_origins,
                   "Origins whose pages may ask: all, localhost, https://… (default: none)")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--seed", http.seed, "Seed of requests without one (default: any)");
  command->add_flag("!--no-page", http.show_page, "No page at /");
  command->add_flag("!--no-slots", http.show_slots, "No /slots");
  command
      ->add_option("--slot-save-path", http.slot_folder,
                   "Folder of the files of POST /slots/N?action=save and restore")
      ->type_name("DIR");
  command->add_flag("!--no-metrics", http.show_metrics, "No /metrics");
  command->add_option("--log", options->log, "Log on stderr: text, json (a line per request), off")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json", "off"}));
  command
      ->add_option("--stop-seconds", options->stop_seconds,
                   "After SIGTERM or Ctrl-C: how long answers under way may take to end")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600));
}

void AddCacheOptions(CLI::App* command, ServeOptions* options) {
  command->add_option("--kv", options->plan, "Plan of the cache")->capture_default_str();
  AddBytes(command, "--cache-bytes", &options->cache_bytes,
           "Memory of all pages, of running and of finished conversations (default: a quarter of "
           "what is free)");
  command->add_flag("!--no-prefix-cache", options->reuse_prefixes,
                    "Nothing is kept for later requests");
  command->add_flag("!--no-reuse-generated", options->reuse_generated,
                    "Keep pages of prompts alone: every answer is bit for bit what the request "
                    "gets alone, but answers are read again in the next turn");
  command
      ->add_option("--disk-cache", options->tiers.disk_folder,
                   "Folder in which pages survive a restart")
      ->type_name("DIR");
  AddBytes(command, "--disk-bytes", &options->tiers.disk_bytes,
           "Most bytes of files in it (default: 4GiB)");
  command
      ->add_option("--redis", options->tiers.redis_url,
                   "Redis that servers share pages through: redis://[[USER]:PASSWORD@]HOST[:PORT] "
                   "(docs/fleet.md)")
      ->type_name("URL");
  command
      ->add_option("--tier-writes", options->tier_writes,
                   "When pages go to the disk cache and Redis: computed (a crash loses none) or "
                   "leaving (when they leave memory: nothing is stored twice)")
      ->capture_default_str()
      ->check(CLI::IsMember({"computed", "leaving"}));
  command
      ->add_option("--idle", options->idle_s,
                   "Seconds without use until the pages of a conversation take the form of idle= "
                   "of the plan; without idle= nothing changes; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("SECONDS");
  command
      ->add_option("--spill", options->spill_s,
                   "Seconds without use until a conversation leaves memory, once the disk cache "
                   "or Redis has its pages; 0: only when room is needed")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("SECONDS");
  command
      ->add_option("--eviction", options->eviction,
                   "Which page goes first: value (cost x chance / bytes) or lru")
      ->capture_default_str()
      ->check(CLI::IsMember({"value", "lru"}));
}

void AddModelOptions(CLI::App* command, ServeOptions* options) {
  varve::cli::AddModelOption(*command, options->model);
  command->add_option("--alias", options->alias, "Name of the model in answers");
  command->add_option(
      "--chat", options->chat_format,
      "Chat template: a built-in one by name, @FILE, or plain (default: the model's own)");
  command->add_option("-c,--ctx", options->ctx, "Context of a conversation (default: the model's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--slots,-j", options->slots, "Requests that are answered at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--chunk", options->chunk_tokens,
                   "Tokens of a prompt between two steps of those who are answered")
      ->capture_default_str()
      ->check(CLI::Range(16, 512));
  command->add_option("--max-waiting", options->max_waiting, "Requests that may wait for a slot")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "Most tokens that a request may ask for (default: the context)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("-t,--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--precision", options->precision, "As in `varve run`")
      ->capture_default_str()
      ->check(varve::cli::PrecisionValidator(/*with_auto=*/true));
  varve::cli::AddRepackOption(*command, options->repack);
  varve::cli::AddSpeechModelOption(*command, options->speech, "--speech")
      ->description(
          "Whisper model of /v1/audio/transcriptions and translations: a file (ggml, .pt or "
          "model.bin), or a name that `varve models` lists");
  command
      ->add_option("--speech-kv", options->speech_plan, "Plan of its caches, such as q8_0,cross=t4")
      ->type_name("PLAN");
  command->add_flag("--check", options->check,
                    "Start, answer one request of its own over HTTP, and end");
}

}  // namespace

void AddServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("serve", "HTTP server: OpenAI's API and llama-server's, shared prefixes");
  auto options = std::make_shared<ServeOptions>();
  AddModelOptions(command, options.get());
  AddCacheOptions(command, options.get());
  AddNetworkOptions(command, options.get());
  command->footer(
      "Listens on this machine alone unless --host says otherwise. docs/serve.md has the "
      "routes.\n\n"
      "Examples:\n"
      "  varve serve                                    # the embedded model, port 8080\n"
      "  varve serve -m smollm2 --kv q8_0 --cache-bytes 2GiB -j 16\n"
      "  varve serve -m smollm2 --kv t4,idle_k=t3,idle_v=t2 --disk-cache DIR --spill 600\n"
      "  curl localhost:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":"
      "\"Hello\"}]}'");
  command->callback([options, exit_code] {
    const varve::Status status = varve::cli::RunServe(*options);
    if (!status.ok()) *exit_code = varve::cli::ReportError(status);
  });
}
