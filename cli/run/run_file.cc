#include "cli/run/run_file.h"

#include <utility>

#include <fmt/format.h>

#include "varve/cache_file.h"

namespace varve::cli {

Status TakePlanOfFile(RunOptions* options) {
  if (options->load.empty() || options->has_plan) return Status();
  VARVE_ASSIGN_OR_RETURN(CacheFileInfo info, ReadCacheFileInfo(options->load));
  options->plans = {info.plan_text};
  return Status();
}

Result<LoadedText> LoadText(const std::string& path, const RunSetup& setup, RunSetup::Lane* lane) {
  VARVE_ASSIGN_OR_RETURN(std::vector<SequenceTokens> loaded,
                         lane->cache->Load(path, {setup.model.model->fingerprint()}));
  if (loaded.size() != 1) {
    return InvalidArgument(
        fmt::format("{}: {} sequences; a run continues one", path, loaded.size()));
  }
  SequenceTokens& text = loaded.front();
  const auto next = static_cast<size_t>(*lane->cache->TokensSeen(text.sequence));
  if (text.tokens.size() < next) {
    return InvalidArgument(
        fmt::format("{}: {} token ids < {} positions", path, text.tokens.size(), next));
  }
  VARVE_RETURN_IF_ERROR(lane->cache->Free(lane->sequence));
  lane->sequence = text.sequence;
  const auto split = text.tokens.begin() + static_cast<ptrdiff_t>(next);
  return LoadedText{{text.tokens.begin(), split}, {split, text.tokens.end()}};
}

Status SaveText(const std::string& path, const RunSetup& setup, const RunSetup::Lane& lane,
                std::vector<int32_t> tokens) {
  SaveOptions options;
  options.sequences.push_back({lane.sequence, std::move(tokens)});
  options.model_fingerprint = setup.model.model->fingerprint();
  options.model_name = setup.model.name.substr(0, 1024);
  return lane.cache->Save(path, options);
}

}  // namespace varve::cli
