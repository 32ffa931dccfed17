// The files of a folder that an option names.

#ifndef VARVE_CLI_FOLDER_FILES_H_
#define VARVE_CLI_FOLDER_FILES_H_

#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

// Names of the files in a folder, ascending; hidden ones and folders in it are left alone.
// kNotFound names option and folder where there is none, or nothing in it.
Result<std::vector<std::string>> ListFiles(std::string_view option, const std::string& folder);

}  // namespace varve::cli

#endif  // VARVE_CLI_FOLDER_FILES_H_
