// `varve models`: which real models lie on this machine, which can be brought, and where is looked.

#ifndef VARVE_CLI_MODELS_MODELS_COMMAND_H_
#define VARVE_CLI_MODELS_MODELS_COMMAND_H_

#include <string>

#include "varve/status.h"

namespace varve::cli {

// The table goes to stdout; with a target, rows {name, kind, what, licence, bytes, path} as JSON
// ("-": in place of the table). `path` is null for what is not here.
Status ListModels(const std::string& json);

}  // namespace varve::cli

#endif  // VARVE_CLI_MODELS_MODELS_COMMAND_H_
