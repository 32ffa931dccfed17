#include "cuda/testing/bench_pages.h"

#include "cuda/testing/cpu_rungs.h"

namespace varve::cuda::testing {
namespace {

PageContent EmptyContent(const PageShape& shape) {
  const auto heads = static_cast<size_t>(shape.kv_heads);
  PageContent content;
  content.keys.resize(heads);
  content.values.resize(heads);
  return content;
}

PageContent MakePqContent(const PqBook& book, const PageShape& shape) {
  SplitMix64 random(7);
  PageContent content = EmptyContent(shape);
  for (int i = 0; i < kPeriod * shape.kv_heads * 2; ++i) {
    const Strip strip = MakePqStrip(book, shape.page_tokens, random);
    content.bytes.insert(content.bytes.end(), strip.bytes.begin(), strip.bytes.end());
    auto& part = i % 2 == 0 ? content.keys : content.values;
    std::vector<float>& decoded = part[static_cast<size_t>(i / 2 % shape.kv_heads)];
    decoded.insert(decoded.end(), strip.rows.begin(), strip.rows.end());
  }
  return content;
}

}  // namespace

float NearlyGaussian(SplitMix64& random) {
  float sum = -6.0f;
  for (int i = 0; i < 12; ++i) sum += static_cast<float>(random.Next() >> 40) * 0x1p-24f;
  return sum;
}

PageContent MakeContent(DeviceRung id, const PageShape& shape, const PqBook& book) {
  if (id == DeviceRung::kPq) return MakePqContent(book, shape);
  SplitMix64 random(7);
  PageContent content = EmptyContent(shape);
  const Rung& rung = *CpuRung(id);
  const StripShape strip = {0, 0, shape.head_dim, shape.page_tokens};
  const size_t floats = static_cast<size_t>(shape.page_tokens) * shape.head_dim;
  std::vector<float> rows(floats);
  for (int page = 0; page < kPeriod; ++page) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (const Part part : {Part::kKey, Part::kValue}) {
        for (float& x : rows) x = NearlyGaussian(random);
        const size_t at = content.bytes.size();
        content.bytes.resize(at + rung.StripBytes(part, strip));
        rung.Encode(part, strip, rows.data(), shape.page_tokens, &content.bytes[at]);
        auto& rows_of = part == Part::kKey ? content.keys : content.values;
        std::vector<float>& decoded = rows_of[static_cast<size_t>(head)];
        decoded.resize(decoded.size() + floats);
        rung.Decode(part, strip, &content.bytes[at], 0, shape.page_tokens,
                    &decoded[decoded.size() - floats]);
      }
    }
  }
  return content;
}

}  // namespace varve::cuda::testing
