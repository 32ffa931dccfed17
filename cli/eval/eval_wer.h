// `varve eval wer`: words that a Whisper model gets wrong, per plan of its caches.

#ifndef VARVE_CLI_EVAL_EVAL_WER_H_
#define VARVE_CLI_EVAL_EVAL_WER_H_

#include <string>
#include <vector>

#include "cli/transcribe/speech_options.h"
#include "varve/status.h"

namespace varve::cli {

struct EvalWerOptions {
  SpeechOptionsSaid speech;
  std::vector<std::string> folders;  // each with sound files and transcripts.tsv
  std::vector<std::string> plans = {"f16"};
  int files = 0;       // of all, the first so many; 0: all
  bool errors = true;  // of K, V and attention
  std::string texts;   // file for what was said and heard; empty: none
  std::string json;
};

// Prints a table to stdout, writes JSON if asked. Ends early, with what it has, on Ctrl-C.
Status EvalWer(const EvalWerOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_EVAL_EVAL_WER_H_
