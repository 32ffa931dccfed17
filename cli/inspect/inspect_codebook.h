// `varve inspect FILE` and `varve codebook inspect FILE` of a codebook: what it is.

#ifndef VARVE_CLI_INSPECT_INSPECT_CODEBOOK_H_
#define VARVE_CLI_INSPECT_INSPECT_CODEBOOK_H_

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "varve/codebook.h"
#include "varve/status.h"

namespace varve::cli {

// True if the file begins as one; false also if it cannot be read.
bool IsCodebookFile(const std::string& path);

// `errors`: one per table, or none.
std::string RenderCodebook(const std::string& name, const Codebook& codebook,
                           std::span<const double> errors, bool colour);
nlohmann::ordered_json CodebookJson(const std::string& name, const Codebook& codebook,
                                    std::span<const double> errors);

struct InspectCodebookOptions {
  std::string path;
  std::string samples;  // a folder of `codebook sample`: the error on its rows too
  std::string json;
  int threads = 0;
};
Status InspectCodebook(const InspectCodebookOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_INSPECT_CODEBOOK_H_
