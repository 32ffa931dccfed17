// Save and Load: between a cache and a .varve file. The bytes are the matter of
// cache_file_writer.h and cache_file_reader.h; here tables become records and records tables.

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "cache/cache_impl.h"
#include "file/cache_file_packed.h"
#include "file/cache_file_writer.h"
#include "plan/plan_rule.h"

namespace varve {
namespace {

PageState StateOf(const PageRecord& page) {
  if (page.IsPacked()) return PageState::kPacked;
  switch (page.state) {
    case kStateFilling:
      return PageState::kFilling;
    case kStateFull:
      return PageState::kFull;
    default:
      return PageState::kSealed;
  }
}

TableEntry MakeEntry(const EntryRecord& record, const PageRef& page) {
  TableEntry entry;
  entry.page = page;
  entry.rows = static_cast<int>(record.rows);
  entry.stage = record.stage;
  entry.wish = record.wish;
  entry.live = LiveMask(record.live);
  entry.score = PageScore({record.bucket_sum, record.smooth, record.last, record.frozen,
                           record.buckets, record.bucket_queries, record.num_buckets});
  return entry;
}

}  // namespace

// Where pages may spill to is of this machine, and so is where a codebook lies (the rungs of the
// file have its hash), and a compressor (folded rows do not need it any more).
std::string CacheImpl::SavedPlanText() const {
  Plan plan = settled_plan_;
  plan.settings.spill.reset();
  plan.settings.spill_mib.reset();
  plan.settings.keep_mib.reset();
  for (LayerRule& rule : plan.rules) {
    // Said in full, so that the file means the same under other defaults.
    const int64_t exact_tokens = layer_plans_[static_cast<size_t>(rule.first_layer)].exact_tokens;
    if (exact_tokens > 0) rule.exact_tokens = exact_tokens;
    rule.codebook.reset();
    if (rule.fold) rule.fold = std::filesystem::path(*rule.fold).filename().string();
  }
  return PrintPlan(plan);
}

Status CacheImpl::Save(const std::string& path, const SaveOptions& options) const {
  if (step_open_) return FailedPrecondition("Save: a step is open; end or abort it first");
  if (options.model_name.size() > kMaxModelNameBytes) {
    return InvalidArgument(fmt::format("Save: model_name has {} bytes > {}",
                                       options.model_name.size(), kMaxModelNameBytes));
  }
  CacheFileContent content{
      shape_, SavedPlanText(), options.model_fingerprint, options.model_name, {}};
  std::vector<uint64_t> ids;
  if (options.sequences.empty()) {
    for (const auto& [id, sequence] : sequences_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (const uint64_t id : ids) content.sequences.push_back({sequences_.at(id).get(), {}});
  }
  std::unordered_set<uint64_t> seen;
  for (const SequenceTokens& item : options.sequences) {
    VARVE_ASSIGN_OR_RETURN(auto found, Find(item.sequence));
    if (!seen.insert(item.sequence.value).second) {
      return InvalidArgument(fmt::format("Save: sequence {} is given twice", item.sequence.value));
    }
    content.sequences.push_back({found, item.tokens});
  }
  for (const CacheFileContent::Item& item : content.sequences) {
    if (item.sequence->next_position > kMaxFilePosition) {
      return InvalidArgument(fmt::format("Save: next_position {} > {}",
                                         item.sequence->next_position, kMaxFilePosition));
    }
    constexpr int64_t kMaxCount = std::numeric_limits<uint32_t>::max();
    if (item.sequence->tokens_restarted() > kMaxCount) {
      return InvalidArgument(
          fmt::format("Save: {} folded tokens > {}", item.sequence->tokens_restarted(), kMaxCount));
    }
    const int64_t prompt = item.sequence->next_position - item.sequence->prompt_begin;
    if (item.sequence->prompt_ended && item.sequence->prompt_open && prompt > kMaxCount)
      return InvalidArgument(fmt::format("Save: {} tokens of a prompt > {}", prompt, kMaxCount));
  }
  return WriteCacheFile(path, content, services_.files);
}

Status CacheImpl::CheckFile(const CacheFile& file, const LoadOptions& options) const {
  const auto differs = [&file](const char* field, auto value, auto expected) {
    return InvalidArgument(
        fmt::format("{}: {} {} is not {}, the cache's", file.name(), field, value, expected));
  };
  const CacheShape& shape = file.shape();
  if (options.model_fingerprint != 0 &&
      options.model_fingerprint != file.header().model_fingerprint) {
    return InvalidArgument(fmt::format(
        "{}: model_fingerprint {:016x} (\"{}\") is not {:016x}, that of the model in use",
        file.name(), file.header().model_fingerprint, file.model_name(),
        options.model_fingerprint));
  }
  if (shape.num_layers != shape_.num_layers)
    return differs("num_layers", shape.num_layers, shape_.num_layers);
  if (shape.num_kv_heads != shape_.num_kv_heads)
    return differs("num_kv_heads", shape.num_kv_heads, shape_.num_kv_heads);
  if (shape.group_size != shape_.group_size)
    return differs("group_size", shape.group_size, shape_.group_size);
  if (shape.key_dim != shape_.key_dim) return differs("key_dim", shape.key_dim, shape_.key_dim);
  if (shape.value_dim != shape_.value_dim)
    return differs("value_dim", shape.value_dim, shape_.value_dim);
  if (shape.page_tokens != shape_.page_tokens)
    return differs("page_tokens", shape.page_tokens, shape_.page_tokens);
  for (size_t layer = 0; layer < layer_plans_.size(); ++layer) {
    // Packing changes no value: a page that is packed is read under any plan. Tokens that the file
    // does not keep exact stay as they are.
    const LayerForm& saved = file.layer_plans()[layer];
    if (saved.GivesSameValues(layer_plans_[layer]) &&
        saved.exact_tokens <= layer_plans_[layer].exact_tokens) {
      continue;
    }
    return InvalidArgument(
        fmt::format("{}: plan \"{}\" is not \"{}\", the cache's: they differ in layer {}",
                    file.name(), file.plan_text(), PrintPlan(settled_plan_), layer));
  }
  for (const PageRecord& page : file.pages()) {
    for (const uint32_t index : {page.key_rung, page.value_rung}) {
      const uint64_t hash =
          OwnRung(static_cast<int>(page.layer), *file.rungs()[index]).codebook_hash();
      if (file.codebook_hashes()[index] == hash) continue;
      return InvalidArgument(fmt::format(
          "{}: rung {}: codebook_hash {:016x} is not {:016x}, that of the codebook in use",
          file.name(), file.rungs()[index]->name, file.codebook_hashes()[index], hash));
    }
  }
  return Status();
}

// Plans agree: what the file's page has, the layer's plan has.
const Rung& CacheImpl::OwnRung(int layer, const RungDescriptor& rung) const {
  const LayerPlan& plan = layer_plans_[static_cast<size_t>(layer)];
  for (const LayerPlan::Stage& stage : plan.stages) {
    if (&stage.k->descriptor() == &rung) return *stage.k;
    if (&stage.v->descriptor() == &rung) return *stage.v;
  }
  return *plan.open_rung;
}

Result<std::vector<SequenceTokens>> CacheImpl::Load(const std::string& path,
                                                    const LoadOptions& options) {
  if (step_open_) return FailedPrecondition("Load: a step is open; end or abort it first");
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const CacheFile> file, CacheFile::Open(path));
  return LoadFrom(file, options);
}

Result<std::vector<SequenceTokens>> CacheImpl::LoadFrom(
    const std::shared_ptr<const CacheFile>& file, const LoadOptions& options) {
  if (step_open_) return FailedPrecondition("Load: a step is open; end or abort it first");
  VARVE_RETURN_IF_ERROR(CheckFile(*file, options));
  // What can fail for want of memory comes before the sequences are there.
  std::vector<SequenceTokens> loaded;
  for (const SequenceRecord& record : file->sequences()) {
    const auto begin = file->tokens().begin() + static_cast<ptrdiff_t>(record.first_token);
    loaded.push_back({SequenceId(), {begin, begin + static_cast<ptrdiff_t>(record.num_tokens)}});
  }
  const uint64_t first = AddSequences(file);
  for (size_t i = 0; i < loaded.size(); ++i) loaded[i].sequence = SequenceId{first + i};
  return loaded;
}

std::vector<PageRef> CacheImpl::MakePages(const std::shared_ptr<const CacheFile>& file) {
  packing_.AddDictionaries(file->dictionaries());
  std::vector<PageRef> pages;
  for (size_t i = 0; i < file->pages().size(); ++i) {
    const PageRecord& record = file->pages()[i];
    PageRef page = store_.MakeUnread(
        static_cast<int>(record.layer), record.first_position, StateOf(record),
        OwnRung(static_cast<int>(record.layer), *file->rungs()[record.key_rung]),
        OwnRung(static_cast<int>(record.layer), *file->rungs()[record.value_rung]),
        UnreadBytes{file, i, PackedBytesOf(record, shape_.num_kv_heads)});
    page->rows = static_cast<int>(record.rows);
    page->tokens_per_row = static_cast<int>(record.tokens_per_row);
    pages.push_back(std::move(page));
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    const uint32_t successor = file->pages()[i].successor;
    if (successor != 0) PageStore::SetSuccessor(pages[i].get(), pages[successor - 1].get());
  }
  return pages;
}

// The reader has checked every index: only memory can be missing, and then nothing is added.
uint64_t CacheImpl::AddSequences(const std::shared_ptr<const CacheFile>& file) {
  const std::vector<PageRef> pages = MakePages(file);
  std::vector<std::unique_ptr<Sequence>> made;
  for (size_t i = 0; i < file->sequences().size(); ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->next_position = file->sequences()[i].next_position;
    const SequenceRecord& record = file->sequences()[i];
    sequence->prompt_ended = (record.flags & SequenceRecord::kPromptEnded) != 0;
    const bool later_prompt = (record.flags & SequenceRecord::kPromptOpen) != 0;
    sequence->prompt_open = !sequence->prompt_ended || later_prompt;
    if (later_prompt) {
      sequence->prompt_begin = record.next_position - file->table(i, 0).prompt_positions;
    }
    // Which of the prompts restarted where is not in the file: all of them are one.
    if (record.tokens_restarted > 0) {
      sequence->restarts.push_back({0, later_prompt ? sequence->prompt_begin : record.next_position,
                                    record.tokens_restarted});
    }
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      const TableRecord& table_record = file->table(i, layer);
      LayerTable& table = sequence->layers.emplace_back(&schedules_[static_cast<size_t>(layer)]);
      table.decision_bytes = table_record.plan_bytes;
      table.Reserve(table_record.num_entries);
      for (uint64_t at = 0; at < table_record.num_entries; ++at) {
        const EntryRecord& entry = file->entries()[table_record.first_entry + at];
        table.Add(MakeEntry(entry, pages[entry.page]));
      }
    }
    folding_.Begin(*sequence);
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      if ((file->table(i, layer).flags & TableRecord::kPlanPending) != 0)
        retention_.Decide(*sequence, layer);
    }
    made.push_back(std::move(sequence));
  }
  decltype(sequences_) added;
  for (size_t i = 0; i < made.size(); ++i) added.emplace(next_id_ + i, std::move(made[i]));
  sequences_.reserve(sequences_.size() + added.size());
  sequences_.merge(added);  // moves what is there
  const uint64_t first = next_id_;
  next_id_ += made.size();
  return first;
}

Status CacheImpl::ReadIn(const PageTable& table) const {
  if (store_.num_unread() == 0) return Status();
  std::vector<Page*> unread;
  for (const TableEntry& entry : table.entries()) {
    if (entry.page->unread() != nullptr) unread.push_back(entry.page.get());
  }
  return store_.Read(unread, executor_);
}

}  // namespace varve
