// ExportPages and ImportPages: whole pages of a sequence as an image, which is a .varve file of one
// sequence that begins where the pages do. What a file may hold is the matter of file/; here is
// what an image must hold besides.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cache/cache_impl.h"
#include "file/cache_file_writer.h"

namespace varve {
namespace {

constexpr const char* kImageName = "page image";

bool IsWholePage(const TableEntry& entry, int page_tokens) {
  return entry.page->tokens_per_row == 1 && entry.page->life != PageState::kFilling &&
         entry.rows == page_tokens && entry.live.Count() == page_tokens;
}

// The positions of an image: those of one layer, and all others must be alike.
struct ImageSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

Status CheckImageTable(const CacheFile& file, int layer, const ImageSpan& span) {
  const auto bad = [layer](const std::string& what) {
    return DataLoss(fmt::format("{}: layer {}: {}", kImageName, layer, what));
  };
  const auto page_tokens = static_cast<uint32_t>(file.shape().page_tokens);
  const TableRecord& table = file.table(0, layer);
  int64_t position = span.begin;
  for (uint64_t i = 0; i < table.num_entries; ++i, position += page_tokens) {
    const EntryRecord& entry = file.entries()[table.first_entry + i];
    const PageRecord& page = file.pages()[entry.page];
    if (page.first_position != position)
      return bad(fmt::format("a page begins at {}, not {}", page.first_position, position));
    if (entry.rows != page_tokens || page.tokens_per_row != 1 || page.state == kStateFilling ||
        LiveMask(entry.live).Count() != file.shape().page_tokens)
      return bad(fmt::format("the page at {} is not whole", position));
  }
  if (position == span.end) return Status();
  return bad(fmt::format("its pages end at {}, not {}", position, span.end));
}

// A file's reader need not touch what lies behind a payload; an image is exactly what was written.
Status CheckPadding(const CacheFile& file, std::span<const std::byte> image) {
  const std::vector<PageRecord>& pages = file.pages();
  for (size_t i = 0; i < pages.size(); ++i) {
    const size_t begin = pages[i].offset + pages[i].stored_bytes;
    const size_t end = i + 1 < pages.size() ? pages[i + 1].offset : image.size();
    const auto padding = image.subspan(begin, end - begin);
    if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; }))
      return DataLoss(fmt::format("{}: page {}: padding is not 0", kImageName, i));
  }
  return Status();
}

Result<ImageSpan> CheckImage(const CacheFile& file, std::span<const std::byte> image) {
  VARVE_RETURN_IF_ERROR(CheckPadding(file, image));
  if (file.sequences().size() != 1) {
    return InvalidArgument(
        fmt::format("{}: has {} sequences, not 1", kImageName, file.sequences().size()));
  }
  const SequenceRecord& sequence = file.sequences()[0];
  const TableRecord& first = file.table(0, 0);
  if (first.num_entries == 0) return InvalidArgument(fmt::format("{}: no page", kImageName));
  const EntryRecord& entry = file.entries()[first.first_entry];
  const ImageSpan span = {file.pages()[entry.page].first_position, sequence.next_position};
  for (int layer = 0; layer < file.shape().num_layers; ++layer)
    VARVE_RETURN_IF_ERROR(CheckImageTable(file, layer, span));
  return span;
}

}  // namespace

Status CacheImpl::CheckImages(const char* call) const {
  if (step_open_)
    return FailedPrecondition(fmt::format("{}: a step is open; end or abort it first", call));
  for (size_t layer = 0; layer < layer_plans_.size(); ++layer) {
    const LayerPlan& plan = layer_plans_[layer];
    if (!plan.retention && !plan.fold) continue;
    return FailedPrecondition(
        fmt::format("{}: layer {}: with {} pages depend on what comes after them", call, layer,
                    plan.fold ? "fold=" : "evict="));
  }
  return Status();
}

Result<std::vector<std::byte>> CacheImpl::ExportPages(SequenceId id, int64_t begin, int64_t end,
                                                      const ExportOptions& options) {
  constexpr const char* kCall = "ExportPages";
  VARVE_ASSIGN_OR_RETURN(const Sequence* found, Find(id));
  VARVE_RETURN_IF_ERROR(CheckImages(kCall));
  const int64_t page_tokens = shape_.page_tokens;
  if (begin < 0 || begin >= end || end > found->next_position || end > kMaxFilePosition ||
      (end - begin) % page_tokens != 0) {
    return InvalidArgument(fmt::format("{}: [{}, {}) is not whole pages of {} inside [0, {})",
                                       kCall, begin, end, page_tokens, found->next_position));
  }
  Sequence part;
  part.next_position = end;
  for (const LayerTable& table : found->layers) {
    LayerTable& copy = part.layers.emplace_back(&table.schedule());
    int64_t position = begin;
    for (const TableEntry& entry : table.entries()) {
      if (entry.page->first_position != position || position == end) continue;
      if (!IsWholePage(entry, shape_.page_tokens)) break;
      TableEntry whole = entry;
      whole.prepared = PageRef();
      copy.Add(std::move(whole));
      position += page_tokens;
    }
    if (position == end) continue;
    return FailedPrecondition(fmt::format("{}: layer {} has no whole page of {} tokens at {}",
                                          kCall, part.layers.size() - 1, page_tokens, position));
  }
  if (options.settled || options.resting) {
    // Of a copy: what is encoded here lives until the image is made.
    Ageing::Counters counters;
    for (size_t layer = 0; layer < part.layers.size(); ++layer) {
      const LayerPlan& plan = layer_plans_[layer];
      if (plan.window_tokens > 0) continue;  // an age that is large enough would drop it
      VARVE_RETURN_IF_ERROR(ReadIn(part.layers[layer]));
      // At once, where both are asked for: what is encoded twice has the errors of both.
      if (options.resting) ageing_.Rest(plan, begin, end, part.layers[layer], &counters);
      ageing_.Apply(plan, kMaxFilePosition, part.layers[layer], &counters);
    }
  }
  return MakeCacheImage(
      {shape_, SavedPlanText(), options_.model_fingerprint, std::string(), {{&part, {}}}});
}

Status CacheImpl::ImportPages(SequenceId id, std::span<const std::byte> image) {
  constexpr const char* kCall = "ImportPages";
  VARVE_ASSIGN_OR_RETURN(Sequence * sequence, FindIdle(id, kCall));
  VARVE_RETURN_IF_ERROR(CheckImages(kCall));
  VARVE_ASSIGN_OR_RETURN(const std::shared_ptr<const CacheFile> file,
                         CacheFile::FromMemory(image, kImageName));
  VARVE_RETURN_IF_ERROR(CheckFile(*file, {options_.model_fingerprint}));
  VARVE_ASSIGN_OR_RETURN(const ImageSpan span, CheckImage(*file, image));
  const bool inside_page = std::any_of(sequence->layers.begin(), sequence->layers.end(),
                                       [](const LayerTable& table) { return table.LastIsOpen(); });
  if (sequence->next_position != span.begin || inside_page) {
    return FailedPrecondition(fmt::format("{}: the pages begin at {}, the sequence is at {}{}",
                                          kCall, span.begin, sequence->next_position,
                                          inside_page ? ", inside a page" : ""));
  }
  const std::vector<PageRef> pages = MakePages(file);
  std::vector<Page*> unread;
  for (const PageRef& page : pages) unread.push_back(page.get());
  VARVE_RETURN_IF_ERROR(store_.Read(unread, executor_));
  const auto num_pages = static_cast<size_t>((span.end - span.begin) / shape_.page_tokens);
  for (LayerTable& table : sequence->layers) table.Reserve(num_pages);

  // Nothing fails from here on. All layers have the pages before anything ages, which takes memory.
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    LayerTable& table = sequence->layers[static_cast<size_t>(layer)];
    const TableRecord& record = file->table(0, layer);
    for (size_t i = 0; i < num_pages; ++i) {
      const EntryRecord& from = file->entries()[record.first_entry + i];
      TableEntry entry;
      entry.page = pages[from.page];
      entry.rows = shape_.page_tokens;
      entry.stage = from.stage;
      entry.live.Fill(0, shape_.page_tokens, true);
      table.Add(std::move(entry));
    }
    table.CountEdit();
  }
  sequence->next_position = span.end;
  Ageing::Counters counters;
  for (int layer = 0; layer < shape_.num_layers; ++layer)
    IfMemoryLasts([&] { AgeLayer(*sequence, layer, &counters); });
  ageing_.Count(counters);
  return Status();
}

}  // namespace varve
