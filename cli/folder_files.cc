#include "cli/folder_files.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace varve::cli {

Result<std::vector<std::string>> ListFiles(std::string_view option, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (!name.starts_with('.') && entry.is_regular_file(ignored)) names.push_back(name);
  }
  if (error) return NotFound(fmt::format("{} \"{}\": {}", option, folder, error.message()));
  if (names.empty()) return NotFound(fmt::format("{} \"{}\": no files in it", option, folder));
  std::ranges::sort(names);
  return names;
}

}  // namespace varve::cli
