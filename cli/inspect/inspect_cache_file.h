// `varve inspect FILE` of a .varve file: what it holds, and whether every byte of it is right.

#ifndef VARVE_CLI_INSPECT_INSPECT_CACHE_FILE_H_
#define VARVE_CLI_INSPECT_INSPECT_CACHE_FILE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "varve/cache_file.h"

namespace varve::cli {

// True if the file begins as one; false also if it cannot be read.
bool IsCacheFile(const std::string& path);

// Lines for people, and the pages by rung and state as a table behind them.
std::string RenderCacheFile(const std::string& path, const CacheFileInfo& info, bool colour);
nlohmann::ordered_json CacheFileJson(const std::string& path, const CacheFileInfo& info);

// Prints, checks every page, writes JSON, and returns the exit code. A damaged page is an error,
// after what the file says about itself.
int InspectCacheFile(const std::string& path, const std::string& json);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_INSPECT_CACHE_FILE_H_
