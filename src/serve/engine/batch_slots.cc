// BatchEngine: what a slot answered last, saved to a file, brought back, forgotten.

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "serve/engine/batch_engine.h"
#include "varve/cache_file.h"

namespace varve::serve {

Status BatchEngine::CheckSlot(int slot, const std::string& tenant, bool needs_content) {
  if (slot < 0 || slot >= options_.num_slots) {
    return NotFound(fmt::format("slot {}: there are 0 … {}", slot, options_.num_slots - 1));
  }
  if (prefixes_ == nullptr) {
    return Unimplemented(fmt::format("slot {}: nothing is kept: {}", slot, prefix_note_));
  }
  for (const auto& running : running_) {
    if (running->slot() == slot) return FailedPrecondition(fmt::format("slot {}: busy", slot));
  }
  const SlotContent& content = slots_[static_cast<size_t>(slot)];
  // Another tenant's slot looks like an empty one.
  if (needs_content && (content.tokens.empty() || content.tenant != tenant)) {
    return NotFound(fmt::format("slot {}: has answered nothing yet", slot));
  }
  return Status();
}

Result<BatchEngine::SlotFile> BatchEngine::SaveSlot(int slot, const std::string& tenant,
                                                    const std::string& path) {
  VARVE_RETURN_IF_ERROR(CheckSlot(slot, tenant, true));
  const std::vector<int32_t>& tokens = slots_[static_cast<size_t>(slot)].tokens;
  const std::vector<PageKey> keys = keys_->Of(tenant, tokens);
  VARVE_ASSIGN_OR_RETURN(const std::optional<PrefixCache::Hit> hit, prefixes_->Take(keys, Now()));
  if (!hit) return NotFound(fmt::format("slot {}: no full page of it is left", slot));
  const size_t num_tokens = hit->num_pages * static_cast<size_t>(cache_->shape().page_tokens);
  SaveOptions save;
  save.sequences.push_back(
      {hit->sequence,
       std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(num_tokens))});
  save.model_fingerprint = model_->fingerprint();
  save.model_name = model_->name();
  const Status saved = cache_->Save(path, save);
  prefixes_->Unpin(hit->pin);
  VARVE_RETURN_IF_ERROR(cache_->Free(hit->sequence));
  if (!saved.ok()) return saved;
  std::error_code error;
  return SlotFile{static_cast<int64_t>(num_tokens), std::filesystem::file_size(path, error)};
}

Result<BatchEngine::SlotFile> BatchEngine::RestoreSlot(int slot, const std::string& tenant,
                                                       const std::string& path) {
  VARVE_RETURN_IF_ERROR(CheckSlot(slot, tenant, false));
  slots_[static_cast<size_t>(slot)] = {};
  VARVE_RETURN_IF_ERROR(VerifyCacheFile(path));
  VARVE_ASSIGN_OR_RETURN(std::vector<SequenceTokens> loaded,
                         cache_->Load(path, {.model_fingerprint = model_->fingerprint()}));
  SlotFile file;
  Status kept;
  for (SequenceTokens& one : loaded) {
    const int64_t there = *cache_->NextPosition(one.sequence);
    one.tokens.resize(std::min(one.tokens.size(), static_cast<size_t>(there)));
    const std::vector<PageKey> keys = keys_->Of(tenant, one.tokens);
    const Result<PrefixNode*> pin =
        prefixes_->Keep(one.sequence, keys, UsPerPage(), Now(), nullptr);
    if (pin.ok() && *pin != nullptr) prefixes_->Unpin(*pin);
    if (kept.ok()) kept = pin.status();
    file.num_tokens += static_cast<int64_t>(keys.size()) * cache_->shape().page_tokens;
    VARVE_RETURN_IF_ERROR(cache_->Free(one.sequence));
    slots_[static_cast<size_t>(slot)] = {std::move(one.tokens), tenant};
  }
  if (!kept.ok()) return kept;
  std::error_code error;
  file.num_bytes = std::filesystem::file_size(path, error);
  return file;
}

Result<int64_t> BatchEngine::EraseSlot(int slot, const std::string& tenant) {
  VARVE_RETURN_IF_ERROR(CheckSlot(slot, tenant, false));
  SlotContent& content = slots_[static_cast<size_t>(slot)];
  if (content.tenant != tenant) return 0;
  const SlotContent erased = std::exchange(content, {});
  if (ends_) ends_->Forget(erased.tokens, tenant);
  VARVE_RETURN_IF_ERROR(prefixes_->Forget(keys_->Of(tenant, erased.tokens)));
  return static_cast<int64_t>(erased.tokens.size());
}

}  // namespace varve::serve
