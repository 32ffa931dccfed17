// What `varve serve` was asked for.

#ifndef VARVE_CLI_SERVE_SERVE_OPTIONS_H_
#define VARVE_CLI_SERVE_SERVE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "serve/http/http_server.h"
#include "varve/status.h"

namespace varve::cli {

struct ServeOptions {
  std::string model;  // empty: the embedded model
  std::string alias;  // what answers call it; empty: its file's name
  std::string plan = "f16";
  std::string chat_format;  // empty: what the file says
  int64_t ctx = 0;          // 0: the model's
  int slots = 8;
  int chunk_tokens = 128;
  int max_waiting = 256;
  int64_t max_tokens = 0;
  uint64_t cache_bytes = 0;  // 0: a quarter of what is free
  bool reuse_prefixes = true;
  bool reuse_generated = true;
  std::string eviction = "value";
  serve::TierSettings tiers;
  std::string tier_writes = "computed";
  double idle_s = 60;
  double spill_s = 0;
  std::string key_file;
  int threads = 0;
  std::string precision = "auto";
  std::string repack = "auto";
  std::string speech;       // a Whisper model; empty: none
  std::string speech_plan;  // empty: f16
  int stop_seconds = 20;
  bool check = false;
  std::string log = "text";
  serve::HttpOptions http;
};

// Loads the model, checks everything, and serves until a signal comes. With `check`: answers one
// request to itself over HTTP and ends.
Status RunServe(ServeOptions options);

}  // namespace varve::cli

#endif  // VARVE_CLI_SERVE_SERVE_OPTIONS_H_
