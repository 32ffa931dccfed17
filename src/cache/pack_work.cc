#include "cache/pack_work.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/timer.h"
#include "pages/strip_reader.h"
#include "store/dictionary.h"
#include "store/part_codec.h"

namespace varve {
namespace {

store::PartShape StripPartShape(const CacheShape& shape, const Page& page, Part part) {
  return PartShapeOf(page.rung(part), part, part == Part::kKey ? shape.key_dim : shape.value_dim,
                     shape.page_tokens);
}

// Where keys turn from row to row; a folded row stands for several positions.
int64_t FirstPosition(const Page& page) {
  return page.tokens_per_row == 1 ? page.first_position : -1;
}

// Packs every strip of a page as the job says, unpacks it again and compares. `raw` are the page's
// bytes, which must stay as they are meanwhile. restored, unless null, gets the unpacked page. Adds
// to the times of the job.
Status PackPage(const CacheShape& shape, const Page& page, const std::byte* raw,
                std::vector<std::byte>* restored, PackedStrips* out, PackJob* job) {
  const PackDictionaries* dictionaries = job->dictionaries.get();
  out->dictionaries = job->dictionaries;
  out->bytes.reserve(page.bytes);
  std::vector<std::byte> again;
  if (restored != nullptr) restored->resize(page.bytes);
  size_t at = 0;
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      const store::PartView view{StripPartShape(shape, page, part), raw + at, 0,
                                 FirstPosition(page)};
      const store::Dictionary* dictionary =
          dictionaries != nullptr ? dictionaries->Of(StripIndex(part, head)) : nullptr;
      const Timer timer;
      VARVE_ASSIGN_OR_RETURN(std::vector<std::byte> packed,
                             job->gear.empty()
                                 ? store::Pack(view, dictionary, store::PackGoal::kQuick)
                                 : store::PackGear(view, job->gear[part == Part::kKey ? 0 : 1]));
      job->pack_us += timer.us();
      // The raw strip is given up only after this.
      const Timer unpack_timer;
      const size_t bytes = view.shape.StripBytes();
      again.resize(bytes);
      VARVE_RETURN_IF_ERROR(store::Unpack(packed, dictionary, {again, 0}));
      if (job->compare && std::memcmp(again.data(), view.data, bytes) != 0) {
        return Status(StatusCode::kDataLoss, "layer " + std::to_string(page.layer) + ", page at " +
                                                 std::to_string(page.first_position) +
                                                 ": a strip differs after packing and unpacking");
      }
      job->unpack_us += unpack_timer.us();
      job->unpacked_bytes += bytes;
      if (restored != nullptr) std::memcpy(restored->data() + at, again.data(), bytes);
      at += bytes;
      out->bytes.insert(out->bytes.end(), packed.begin(), packed.end());
      out->ends.push_back(static_cast<uint32_t>(out->bytes.size()));
    }
  }
  return Status();
}

// Dictionaries for the pages of a job, a strip each. What the job has is kept where it is good
// enough. Unpacks one strip of all pages at a time.
Result<std::shared_ptr<const PackDictionaries>> LearnDictionaries(const CacheShape& shape,
                                                                  const PackJob& job) {
  // A row that came once stays with its page.
  store::DictionaryOptions options;
  options.min_count = 2;
  auto learned = std::make_shared<PackDictionaries>();
  std::vector<std::byte> unpacked;
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      const size_t strip = StripIndex(part, head);
      // Codes of a codebook have no pattern that a dictionary could know.
      if (StripPartShape(shape, *job.pages[0], part).lane == store::LaneType::kBytes) {
        learned->of_strip.push_back(nullptr);
        continue;
      }
      if (!job.learn_all && job.dictionaries->Of(strip)->num_rows() == 0) {
        learned->of_strip.push_back(job.dictionaries->of_strip[strip]);
        continue;
      }
      // The pages of a job are alike.
      const size_t strip_bytes = job.pages[0]->part(part).strip_bytes;
      unpacked.resize(strip_bytes * job.pages.size());
      std::vector<store::PartView> samples;
      for (size_t i = 0; i < job.pages.size(); ++i) {
        const Page& page = *job.pages[i];
        const std::byte* bytes = unpacked.data() + i * strip_bytes;
        if (job.packed_from[i] == nullptr) {
          bytes = page.Strip(part, head);
        } else {
          VARVE_RETURN_IF_ERROR(UnpackStrip(shape, page, *job.packed_from[i], part, head,
                                            unpacked.data() + i * strip_bytes));
        }
        samples.push_back({StripPartShape(shape, page, part), bytes, 0, FirstPosition(page)});
      }
      VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const store::Dictionary> dictionary,
                             store::BuildDictionary(samples, options));
      learned->of_strip.push_back(std::move(dictionary));
    }
  }
  return std::shared_ptr<const PackDictionaries>(std::move(learned));
}

void RestoreAll(const CacheShape& shape, PackJob& job) {
  const Timer timer;
  for (size_t i = 0; i < job.pages.size() && job.status.ok(); ++i) {
    job.status = RestorePage(shape, *job.pages[i], *job.packed_from[i], job.slots[i].data);
    job.unpacked_bytes += job.pages[i]->bytes;
  }
  job.unpack_us = timer.us();
}

void PackAll(const CacheShape& shape, PackJob& job) {
  if (job.learn) {
    const Timer timer;
    Result<std::shared_ptr<const PackDictionaries>> learned = LearnDictionaries(shape, job);
    if (!learned.ok()) {
      job.status = learned.status();
      return;
    }
    job.dictionaries = std::move(*learned);
    job.pack_us += timer.us();
  }
  std::vector<std::byte> unpacked;
  for (size_t i = 0; i < job.pages.size(); ++i) {
    const Page& page = *job.pages[i];
    PackJob::Packed& packed = job.packed.emplace_back();
    if (job.packed_from[i] != nullptr) {
      unpacked.resize(page.bytes);
      packed.status = RestorePage(shape, page, *job.packed_from[i], unpacked.data());
      if (!packed.status.ok()) continue;
    }
    const std::byte* raw = job.packed_from[i] != nullptr ? unpacked.data() : page.raw();
    packed.status = PackPage(shape, page, raw, job.keep_restored ? &packed.restored : nullptr,
                             &packed.strips, &job);
  }
}

class CodecWork final : public PackWork {
 public:
  void Run(const CacheShape& shape, PackJob& job) override {
    job.kind == PackJob::Kind::kRestore ? RestoreAll(shape, job) : PackAll(shape, job);
  }
};

}  // namespace

PackWork* CodecPackWork() {
  static CodecWork work;
  return &work;
}

}  // namespace varve
