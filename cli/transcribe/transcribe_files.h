// The work of `varve transcribe`: sound files to text, several at once over one page pool.

#ifndef VARVE_CLI_TRANSCRIBE_TRANSCRIBE_FILES_H_
#define VARVE_CLI_TRANSCRIBE_TRANSCRIBE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/transcribe/speech_options.h"
#include "varve/status.h"

namespace varve::cli {

struct TranscribeFilesOptions {
  SpeechOptionsSaid speech;
  std::vector<std::string> files;  // "-": stdin
  std::string format = "txt";      // txt, srt, vtt, json
  std::string output;              // a file, of several inputs a folder; empty: stdout
  std::string plan;                // --kv; empty: f16, or what the next two say
  std::string type_k;
  std::string type_v;
  int together = 1;         // -j
  uint64_t max_memory = 0;  // 0: no limit
  bool stats = false;
};

// The plan that --kv, or --kv-type-k and --kv-type-v, mean.
Result<Plan> SpeechPlanFor(const TranscribeFilesOptions& options);

// Every file is tried; the first error is returned, each one is reported.
Status TranscribeFiles(const TranscribeFilesOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_TRANSCRIBE_TRANSCRIBE_FILES_H_
