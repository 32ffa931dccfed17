// Conversations in a file, for --turns of `run` and `gate`:
//
//   [{"name": "trip", "reply_tokens": 32, "turns": ["Where to?", "And then?"]}, …]

#ifndef VARVE_CLI_RUN_TURNS_FILE_H_
#define VARVE_CLI_RUN_TURNS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

struct ScriptedTalk {
  std::string name = "conversation";
  int64_t reply_tokens = 0;        // of each answer at most; 0: the file does not say
  std::vector<std::string> turns;  // of the user; at least one, none is empty
};

// Errors name the option, the file and the field.
Result<std::vector<ScriptedTalk>> ReadTurnsFile(const std::string& path);

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_TURNS_FILE_H_
