// What `varve run` was asked for, and what it runs on.

#ifndef VARVE_CLI_RUN_RUN_OPTIONS_H_
#define VARVE_CLI_RUN_RUN_OPTIONS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "runtime/generate.h"
#include "runtime/tokenizer/chat_template.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve::cli {

// Temperature and top-p where nothing was said. One plan: mild sampling, since greedy text of small
// models goes round in circles; the seed is fixed, so a run can be repeated. Several plans: greedy,
// so that the texts differ only where the caches make them.
inline constexpr float kTextTemperature = 0.8f;
inline constexpr float kTextTopP = 0.95f;

struct RunOptions {
  std::string model;  // empty: the embedded model
  std::optional<std::string> prompt;
  std::string file;                // "-": stdin
  int64_t prompt_tokens = 0;       // only so many of the prompt's; 0: all
  int64_t tokens = -1;             // -1: 256, or to the end of the answer in a chat
  std::string prompts;             // a folder: each of its files is a prompt
  std::string turns;               // a file of conversations
  int together = 1;                // of them, at most so many at a time
  std::string output;              // folder for a text per prompt; empty: stdout, with headings
  std::vector<std::string> stops;  // texts that end an answer
  bool ignore_end = false;         // the model's own ends end nothing
  std::vector<std::string> plans = {"f16"};
  std::string key_rung;  // --cache-type-k, -v: short forms of a plan
  std::string value_rung;
  bool has_plan = false;    // --kv was given
  std::string load;         // .varve file to continue
  std::string save;         // .varve file to leave behind
  int64_t ctx = 0;          // 0: the model's context
  bool chat = false;        // --chat: the prompt is a message, wherever it comes from
  bool raw = false;         // --raw: text to continue, whatever the model is
  bool special = false;     // what a prompt spells as special tokens are such tokens
  std::string chat_format;  // a built-in one, or "@FILE"; empty: what the model's file says
  std::string system;
  std::optional<float> temperature;
  std::optional<float> top_p;
  SamplerOptions sampler;  // the rest of it
  int threads = 0;
  uint64_t max_bytes = 0;  // of each cache, side by side of all but f16; 0: no cap
  std::string device = "cpu";
  std::string precision = "auto";
  std::string repack = "auto";
  bool probe = true;  // run_probe.h
  std::string json;
  std::string report;   // HTML
  std::string trace;    // what policies did: JSON lines, or a picture if it ends in .html
  std::string command;  // as typed, for the report
};

// The model with everything that generating needs. Movable; owns all of it.
struct RunSetup {
  LoadedModel model;  // on the CPU
  std::unique_ptr<Executor> executor;
  std::unique_ptr<DecoderRunner> runner;  // of the model, or of its copy on a GPU (--device)
  std::vector<Plan> plans;                // as options.plans
  GenerateOptions generate;               // limits, sampler, end tokens
  std::optional<ChatTemplate> chat;       // none: the prompt is text to continue
  std::string chat_name;  // for people: a built-in format, or that it is the model's own
  bool is_chat() const { return chat.has_value(); }
  uint64_t max_bytes = 0;
  std::FILE* out = nullptr;  // where text goes: stdout, unless JSON goes there

  // A cache with one empty sequence.
  struct Lane {
    std::unique_ptr<Cache> cache;
    SequenceId sequence;
  };
  Result<Lane> MakeLane(const Plan& plan, RetentionObserver* observer = nullptr,
                        bool has_cap = true) const;
};

// Loads the model and checks every option before anything runs.
Result<RunSetup> PrepareRun(const RunOptions& options);

// Memory of a cache after num_tokens tokens went in, dropped ones included.
struct CacheFigures {
  uint64_t bytes = 0;      // held by the pool, and tables
  uint64_t bytes_f16 = 0;  // all num_tokens in plain f16
  double ratio = 0;        // bytes_f16 / bytes
  double bytes_per_token = 0;
};
CacheFigures FiguresOf(const Cache& cache, int64_t num_tokens);

// The parts of `varve run`, a file each.
Status RunText(const RunOptions& asked);       // one plan: run_text.cc
Status RunCompare(const RunOptions& options);  // several: run_compare.cc
Status RunPrompts(const RunOptions& options);  // a folder of prompts: run_prompts.cc
Status RunTurns(const RunOptions& asked);      // conversations from a file: run_turns.cc

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_RUN_OPTIONS_H_
