// The folding half of ReferenceCache, written a second time from docs/plans.md. The networks are
// those of src/fold, so that stored values agree bit for bit; they have tests of their own.

#include <algorithm>

#include "fold/fold_network.h"
#include "tests/cache/reference_cache.h"

namespace varve {

// `first` is the first of `factor` neighbours.
ReferenceRow ReferenceCache::FoldRow(int layer, bool image, const ReferenceRow* first) const {
  const int factor = compressor_->factor;
  ReferenceRow folded = first[factor - 1];
  for (const Part part : {Part::kKey, Part::kValue}) {
    const bool key = part == Part::kKey;
    const CompressorPart which =
        image ? (key ? CompressorPart::kImageKey : CompressorPart::kImageValue)
              : (key ? CompressorPart::kTextKey : CompressorPart::kTextValue);
    const FoldNetwork network(compressor_->Mlp(layer, which), compressor_->dtype, ActiveKernels());
    const int dim = key ? shape_.key_dim : shape_.value_dim;
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      std::vector<float> side_by_side;  // [factor, dim]
      for (int i = 0; i < factor; ++i) {
        const std::vector<float>& row = key ? first[i].key : first[i].value;
        side_by_side.insert(side_by_side.end(), row.begin() + head * dim,
                            row.begin() + (head + 1) * dim);
      }
      std::vector<float> scratch;
      network.Run(side_by_side.data(), 1, (key ? folded.key : folded.value).data() + head * dim,
                  &scratch);
    }
  }
  return folded;
}

ReferenceCache::Pages ReferenceCache::Folded(int layer, const Sequence& sequence) const {
  Pages folded;
  std::vector<ReferenceRow> rows;
  for (const ReferencePage& page : sequence.layers[layer]) {
    if (page.end_position() <= sequence.prompt_begin) {
      folded.push_back(page);
      continue;
    }
    std::copy_if(page.rows.begin(), page.rows.end(), std::back_inserter(rows),
                 [](const ReferenceRow& row) { return row.live; });
  }
  const size_t num_kept = folded.size();
  const int64_t image_tokens =
      sequence.prompt_begin == 0 ? RuleOf(layer).image_tokens.value_or(0) : 0;
  const int64_t open_begin = sequence.next_position - OpenTokens(layer);
  enum Kind { kBefore, kImage, kText, kOpen };
  const auto kind_of = [&](size_t i) {
    if (rows[i].position < sequence.prompt_begin) return kBefore;
    if (rows[i].position >= open_begin) return kOpen;
    return rows[i].position < image_tokens ? kImage : kText;
  };
  const Rung* open = OpenRung(layer);
  const int factor = compressor_->factor;
  bool any = false;
  // Rows of one kind that follow each other share pages.
  const auto add = [&](const ReferenceRow& row, int tokens_per_row, bool image,
                       bool* is_image_page) {
    const int64_t first = row.position - tokens_per_row + 1;
    const bool joins = folded.size() > num_kept && folded.back().tokens_per_row == tokens_per_row &&
                       folded.back().end_position() == first && *is_image_page == image &&
                       static_cast<int>(folded.back().rows.size()) < shape_.page_tokens;
    if (!joins) folded.push_back({first, {}, open, open, -1, tokens_per_row});
    *is_image_page = image;
    folded.back().rows.push_back(row);
  };
  bool is_image_page = false;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end].position == rows[end - 1].position + 1 &&
           kind_of(end) == kind_of(begin)) {
      ++end;
    }
    const Kind kind = kind_of(begin);
    const bool image = kind == kImage;
    size_t groups = (end - begin) / static_cast<size_t>(factor);
    if (groups < static_cast<size_t>(std::max(1, compressor_->min_groups))) groups = 0;
    if (kind == kBefore || kind == kOpen || (image && !compressor_->has_image)) groups = 0;
    for (size_t group = 0; group < groups; ++group, begin += static_cast<size_t>(factor))
      add(FoldRow(layer, image, &rows[begin]), factor, image, &is_image_page);
    any = any || groups > 0;
    for (; begin < end; ++begin) add(rows[begin], 1, false, &is_image_page);
  }
  if (!any) return {};
  for (size_t i = num_kept; i < folded.size(); ++i) {
    Store(Part::kKey, *open, layer, folded[i]);
    Store(Part::kValue, *open, layer, folded[i]);
  }
  return folded;
}

void ReferenceCache::BeginPrompt(SequenceId id) {
  Sequence& sequence = sequences_.at(id.value);
  if (sequence.prompt_open) return;
  sequence.prompt_open = true;
  sequence.prompt_begin = sequence.next_position;
}

void ReferenceCache::EndPrompt(SequenceId id, bool fold) {
  Sequence& sequence = sequences_.at(id.value);
  bool restart = false;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    if (!fold || !Waits(sequence, layer)) continue;
    Pages folded = Folded(layer, sequence);
    if (folded.empty()) continue;
    restart = plan_.settings.fold_positions == FoldPositions::kRestart;
    sequence.layers[layer] = std::move(folded);
  }
  sequence.prompt_open = false;
  if (restart) {
    // The prompt's rows are counted from where it begins.
    int64_t next = 0;
    for (Pages& pages : sequence.layers) {
      next = sequence.prompt_begin;
      for (ReferencePage& page : pages) {
        if (page.end_position() <= sequence.prompt_begin) continue;
        if (page.first_position >= sequence.prompt_begin) {
          page.first_position = next;
          page.tokens_per_row = 1;
          for (ReferenceRow& row : page.rows) row.position = next++;
        }
        next = page.end_position();
      }
    }
    sequence.restarts.emplace_back(sequence.prompt_begin, sequence.next_position - next);
    sequence.next_position = next;
  }
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    if (RuleOf(layer).fold) Age(sequence.layers[layer], layer, sequence.next_position);
  }
}

bool ReferenceCache::IsInsideRow(SequenceId id, int64_t position) const {
  for (const Pages& pages : sequences_.at(id.value).layers) {
    for (const ReferencePage& page : pages) {
      if (position <= page.first_position || position >= page.end_position()) continue;
      if ((position - page.first_position) % page.tokens_per_row != 0) return true;
    }
  }
  return false;
}

}  // namespace varve
