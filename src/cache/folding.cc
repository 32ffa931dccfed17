#include "cache/folding.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/run_parallel.h"
#include "base/timer.h"
#include "fold/fold_network.h"
#include "pages/strip_reader.h"

namespace varve {
namespace {

// How many pages at the front of a table hold nothing from `position` on.
size_t PagesBefore(const LayerTable& table, int64_t position) {
  const auto first =
      std::find_if(table.entries().begin(), table.entries().end(),
                   [&](const TableEntry& entry) { return entry.EndPosition() > position; });
  return static_cast<size_t>(first - table.entries().begin());
}

// Runs of positions of which every row lives.
std::vector<PositionRun> RunsOf(std::span<const TableEntry> entries) {
  std::vector<PositionRun> runs;
  for (const TableEntry& entry : entries) {
    for (int row = 0; row < entry.rows; ++row) {
      if (!entry.live.Get(row)) continue;
      const int64_t position = entry.page->first_position + row;
      if (runs.empty() || runs.back().end != position) runs.push_back({position, position});
      ++runs.back().end;
    }
  }
  return runs;
}

// The f32 rows of positions [begin, end) of one strip, where no page of the table is folded.
void ReadRows(const LayerTable& table, Part part, const StripShape& shape, int64_t begin,
              int64_t end, StripReader& reader, float* out) {
  for (const TableEntry& entry : table.entries()) {
    const Page& page = *entry.page;
    const int64_t from = std::max(begin, page.first_position);
    const int64_t to = std::min(end, entry.EndPosition());
    if (from >= to) continue;
    const std::byte* strip = reader.Get(page, part, shape.kv_head);
    if (!reader.status().ok()) return;
    page.rung(part).Decode(part, shape, strip, static_cast<int>(from - page.first_position),
                           static_cast<int>(to - from), out + (from - begin) * shape.dim);
  }
}

// What policies know of the tokens of a new page: old pages' scores by the part of them in it.
PageScore ScoreOf(const LayerTable& table, int64_t begin, int64_t end) {
  std::vector<PageScore::Share> shares;
  for (const TableEntry& entry : table.entries()) {
    const int64_t from = std::max(begin, entry.page->first_position);
    const int64_t to = std::min(end, entry.EndPosition());
    if (from < to) {
      shares.push_back({&entry.score,
                        static_cast<double>(to - from) /
                            static_cast<double>(entry.EndPosition() - entry.page->first_position)});
    }
  }
  return PageScore::Blend(shares);
}

uint64_t HeldBytes(std::span<const TableEntry> entries) {
  uint64_t bytes = 0;
  for (const TableEntry& entry : entries) bytes += entry.page->HeldBytes();
  return bytes;
}

// What a prompt's pages hold.
struct PromptRows {
  uint64_t rows = 0;
  uint64_t raw = 0;  // of them: rows of one token
};

// Rows that live at or behind `prompt_begin`.
PromptRows CountRows(std::span<const TableEntry> entries, int64_t prompt_begin) {
  PromptRows count;
  for (const TableEntry& entry : entries) {
    for (int row = 0; row < entry.rows; ++row) {
      if (!entry.live.Get(row) || entry.page->RowPosition(row) < prompt_begin) continue;
      ++count.rows;
      if (entry.page->tokens_per_row == 1) ++count.raw;
    }
  }
  return count;
}

}  // namespace

struct Folding::FreshTable {
  std::span<const TableEntry> made() const { return std::span(entries).subspan(num_kept); }
  std::span<TableEntry> made() { return std::span(entries).subspan(num_kept); }

  bool changes = false;  // false: nothing is long enough to be folded, the table stays
  // The first num_kept are the table's own, from before the prompt; the others are new.
  std::vector<TableEntry> entries;
  size_t num_kept = 0;
  std::vector<bool> images;  // per new entry: folded by the networks for images
  PromptRows rows;           // of the new entries
};

Folding::Folding(const CacheShape& shape, const std::vector<LayerPlan>& plans,
                 const Kernels& kernels, PageStore* store, Executor* executor)
    : shape_(shape), plans_(plans), kernels_(kernels), store_(store), executor_(executor) {
  for (const LayerPlan& plan : plans) stats_.layers += plan.fold ? 1 : 0;
}

void Folding::Begin(Sequence& sequence) const {
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    LayerTable& table = sequence.layers[layer];
    const auto prompt =
        std::span(table.entries()).subspan(PagesBefore(table, sequence.prompt_begin));
    // A file may say of a prompt that it has not ended, though it has been folded.
    table.SetHeld(plans_[layer].fold && sequence.prompt_open &&
                  std::all_of(prompt.begin(), prompt.end(), [](const TableEntry& entry) {
                    return entry.page->tokens_per_row == 1;
                  }));
  }
}

void Folding::Skip(Sequence& sequence) {
  bool any = false;
  for (LayerTable& table : sequence.layers) {
    any = any || table.held();
    table.SetHeld(false);
  }
  if (any) ++stats_.prompts_skipped;
}

Status Folding::Fold(Sequence& sequence) {
  const Timer timer;
  std::vector<FreshTable> fresh;
  fresh.reserve(plans_.size());
  bool any = false;
  bool restart = false;
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    FreshTable& made = fresh.emplace_back();
    if (!sequence.layers[layer].held()) continue;
    const Status status = FoldLayer(static_cast<int>(layer), sequence, &made);
    if (!status.ok())
      return Status(status.code(), fmt::format("fold, layer {}: {}", layer, status.message()));
    any = any || made.changes;
    restart = plans_[layer].fold->restart_positions;
  }
  restart = restart && any;
  if (restart) {
    VARVE_RETURN_IF_ERROR(Restart(sequence.prompt_begin, fresh));
    sequence.restarts.reserve(sequence.restarts.size() + 1);
  }

  // Nothing fails from here on.
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    LayerTable& table = sequence.layers[layer];
    if (fresh[layer].changes) Install(sequence.prompt_begin, table, fresh[layer]);
    table.SetHeld(false);
  }
  if (restart) {
    const int64_t end = sequence.layers.front().back().EndPosition();
    sequence.restarts.push_back({sequence.prompt_begin, end, sequence.next_position - end});
    sequence.next_position = end;
  }
  if (any) ++stats_.prompts;
  stats_.fold_us += timer.us();
  return Status();
}

Status Folding::FoldLayer(int layer, const Sequence& sequence, FreshTable* fresh) {
  const LayerPlan& plan = plans_[static_cast<size_t>(layer)];
  const LayerTable& table = sequence.layers[static_cast<size_t>(layer)];
  const FoldRule& rule = *plan.fold;
  const Compressor& compressor = *rule.compressor;
  const size_t num_kept = PagesBefore(table, sequence.prompt_begin);
  const auto prompt = std::span(table.entries()).subspan(num_kept);
  FoldSizes sizes = {.factor = compressor.factor, .min_groups = compressor.min_groups};
  // An image lies at the very beginning.
  if (sequence.prompt_begin == 0) sizes.image_tokens = rule.image_tokens;
  sizes.has_image = compressor.has_image;
  sizes.fold_begin = sequence.prompt_begin;
  // What open=N keeps exact is not folded.
  sizes.fold_end = sequence.next_position - plan.stages.front().from_age;
  const std::vector<FoldPiece> pieces = CutForFold(RunsOf(prompt), sizes);
  fresh->changes = std::any_of(pieces.begin(), pieces.end(),
                               [](const FoldPiece& piece) { return piece.tokens_per_row > 1; });
  if (!fresh->changes) return Status();
  std::vector<Page*> unread;
  for (const TableEntry& entry : prompt) unread.push_back(entry.page.get());
  VARVE_RETURN_IF_ERROR(store_->Read(unread, executor_));
  fresh->entries.assign(table.entries().begin(),
                        table.entries().begin() + static_cast<ptrdiff_t>(num_kept));
  fresh->num_kept = num_kept;
  VARVE_RETURN_IF_ERROR(MakePages(layer, sequence.next_position, pieces, fresh));
  VARVE_RETURN_IF_ERROR(ComputeRows(layer, table, *fresh));
  fresh->rows = CountRows(fresh->made(), sequence.prompt_begin);
  for (TableEntry& entry : fresh->made())
    entry.score = ScoreOf(table, entry.page->first_position, entry.EndPosition());
  return Status();
}

Status Folding::MakePages(int layer, int64_t next_position, const std::vector<FoldPiece>& pieces,
                          FreshTable* fresh) {
  const Rung& open = *plans_[static_cast<size_t>(layer)].open_rung;
  for (const FoldPiece& piece : pieces) {
    for (int64_t first = 0; first < piece.num_rows; first += shape_.page_tokens) {
      TableEntry& entry = fresh->entries.emplace_back();
      fresh->images.push_back(piece.image);
      VARVE_ASSIGN_OR_RETURN(
          entry.page, store_->Make(layer, piece.first_position + first * piece.tokens_per_row,
                                   PageState::kFull, open, open));
      entry.page->tokens_per_row = piece.tokens_per_row;
      entry.rows = static_cast<int>(std::min<int64_t>(piece.num_rows - first, shape_.page_tokens));
      entry.page->rows = entry.rows;
      entry.live.Fill(0, entry.rows, true);
    }
  }
  // The prompt's last tokens may be rows that more will follow.
  Page* last = fresh->entries.back().page.get();
  if (last->tokens_per_row == 1 && last->rows < shape_.page_tokens &&
      fresh->entries.back().EndPosition() == next_position) {
    store_->SetLife(last, PageState::kFilling);
  }
  return Status();
}

Status Folding::ComputeRows(int layer, const LayerTable& table, const FreshTable& fresh) {
  const Compressor& compressor = *plans_[static_cast<size_t>(layer)].fold->compressor;
  std::vector<std::optional<FoldNetwork>> networks(kCompressorParts);
  const auto index_of = [](bool image, Part part) {
    const CompressorPart which =
        image ? (part == Part::kKey ? CompressorPart::kImageKey : CompressorPart::kImageValue)
              : (part == Part::kKey ? CompressorPart::kTextKey : CompressorPart::kTextValue);
    return static_cast<size_t>(which);
  };
  const std::span<const TableEntry> made = fresh.made();
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i].page->tokens_per_row == 1) continue;
    for (const Part part : {Part::kKey, Part::kValue}) {
      const size_t index = index_of(fresh.images[i], part);
      if (networks[index]) continue;
      networks[index].emplace(compressor.layers[static_cast<size_t>(layer)][index],
                              compressor.dtype, kernels_);
    }
  }
  const auto heads = static_cast<size_t>(shape_.num_kv_heads);
  std::vector<Status> failed(made.size() * heads * 2);
  RunParallel(*executor_, failed.size(), [&](size_t task, int) {
    const size_t index = task / (2 * heads);
    const Page& page = *made[index].page;
    const int head = static_cast<int>(task / 2 % heads);
    const Part part = task % 2 == 0 ? Part::kKey : Part::kValue;
    const StripShape shape = store_->ShapeOf(part, layer, head);
    const int tokens = page.rows * page.tokens_per_row;
    std::vector<float> rows(static_cast<size_t>(tokens) * static_cast<size_t>(shape.dim));
    StripReader reader(shape_);
    ReadRows(table, part, shape, page.first_position, page.first_position + tokens, reader,
             rows.data());
    failed[task] = reader.status();
    if (!reader.status().ok()) return;
    std::vector<float> folded;
    const float* result = rows.data();
    if (page.tokens_per_row > 1) {
      std::vector<float> scratch;
      folded.resize(static_cast<size_t>(page.rows) * static_cast<size_t>(shape.dim));
      networks[index_of(fresh.images[index], part)]->Run(rows.data(), page.rows, folded.data(),
                                                         &scratch);
      result = folded.data();
    }
    const Rung& rung = page.rung(part);
    std::byte* strip = page.Strip(part, head);
    nonfinite_values_ += rung.WriteRows(part, shape, strip, 0, page.rows, result, shape.dim);
    // Rows that may never be written: what packs the page must not find what was there before.
    const std::vector<float> zeros(static_cast<size_t>(shape.dim));
    rung.WriteRows(part, shape, strip, page.rows, shape.page_tokens - page.rows, zeros.data(), 0);
  });
  for (Status& status : failed) {
    if (!status.ok()) return std::move(status);
  }
  return Status();
}

// Numbers the prompt's rows one after the other. Every layer must end at the same position.
Status Folding::Restart(int64_t prompt_begin, std::vector<FreshTable>& fresh) {
  std::optional<int64_t> end;
  for (size_t layer = 0; layer < fresh.size(); ++layer) {
    int64_t next = prompt_begin;
    for (TableEntry& entry : fresh[layer].made()) {
      // Tokens from before the prompt that lay in a page with its first ones keep their positions.
      if (entry.page->first_position >= prompt_begin) entry.page->first_position = next;
      entry.page->tokens_per_row = 1;
      next = std::max(next, entry.EndPosition());
    }
    if (!end) end = next;
    if (next == *end) continue;
    return FailedPrecondition(fmt::format(
        "fold_positions=restart: layer {} ends at position {}, layer 0 at {}", layer, next, *end));
  }
  return Status();
}

void Folding::Install(int64_t prompt_begin, LayerTable& table, FreshTable& fresh) {
  const auto prompt = std::span(table.entries()).subspan(fresh.num_kept);
  stats_.bytes_before += HeldBytes(prompt);
  stats_.bytes_after += HeldBytes(fresh.made());
  stats_.tokens += CountRows(prompt, prompt_begin).rows;
  stats_.rows += fresh.rows.rows;
  stats_.rows_raw += fresh.rows.raw;
  table.Assign(std::move(fresh.entries));
  table.CountEdit();
}

}  // namespace varve
