#include "store/gear_stream.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "store/zstd_bytes.h"

namespace varve::store {
namespace {

constexpr std::pair<GearPredictor, std::string_view> kNames[] = {
    {GearPredictor::kRaw, "raw"},
    {GearPredictor::kDeltaSeq, "delta_seq"},
    {GearPredictor::kXorSeq, "xor_seq"},
    {GearPredictor::kPairDelta, "pair_delta"},
};

constexpr size_t kMaxLiterals = 128;
constexpr size_t kMinRun = 4;
constexpr size_t kMaxRun = 127 + kMinRun;

std::byte Minus(std::byte a, std::byte b) {
  return static_cast<std::byte>(static_cast<int>(a) - static_cast<int>(b));
}
std::byte Plus(std::byte a, std::byte b) {
  return static_cast<std::byte>(static_cast<int>(a) + static_cast<int>(b));
}

}  // namespace

GearPredictorSet GearPredictorSet::Keys() {
  return {.predictors = {GearPredictor::kRaw, GearPredictor::kDeltaSeq, GearPredictor::kXorSeq,
                         GearPredictor::kPairDelta}};
}

GearPredictorSet GearPredictorSet::Values() {
  return {.predictors = {GearPredictor::kRaw, GearPredictor::kDeltaSeq, GearPredictor::kXorSeq}};
}

Result<GearPredictorSet> ParseGearPredictors(std::string_view text) {
  GearPredictorSet set;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const auto& known) { return known.second == name; });
    if (found == std::end(kNames)) {
      return InvalidArgument(
          fmt::format("predictor \"{}\" is not one of raw, delta_seq, xor_seq, pair_delta", name));
    }
    set.predictors.push_back(found->first);
    begin = end + 1;
  }
  return set;
}

std::vector<std::byte> GearPredict(GearPredictor predictor, std::span<const std::byte> bytes) {
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  for (size_t i = 1; i < bytes.size(); ++i) {
    if (predictor == GearPredictor::kDeltaSeq) out[i] = Minus(bytes[i], bytes[i - 1]);
    if (predictor == GearPredictor::kXorSeq) out[i] = bytes[i] ^ bytes[i - 1];
    if (predictor == GearPredictor::kPairDelta && i % 2 == 1) {
      out[i] = Minus(bytes[i], bytes[i - 1]);
    }
  }
  return out;
}

void GearUnpredict(GearPredictor predictor, std::span<std::byte> bytes) {
  for (size_t i = 1; i < bytes.size(); ++i) {
    if (predictor == GearPredictor::kDeltaSeq) bytes[i] = Plus(bytes[i], bytes[i - 1]);
    if (predictor == GearPredictor::kXorSeq) bytes[i] ^= bytes[i - 1];
    if (predictor == GearPredictor::kPairDelta && i % 2 == 1) {
      bytes[i] = Plus(bytes[i], bytes[i - 1]);
    }
  }
}

std::vector<std::byte> GearRleEncode(std::span<const std::byte> bytes) {
  std::vector<std::byte> out;
  size_t literals = 0;  // that end at `i` and are not written yet
  const auto flush = [&](size_t end) {
    for (size_t begin = end - literals; begin < end;) {
      const size_t count = std::min(kMaxLiterals, end - begin);
      out.push_back(static_cast<std::byte>(count - 1));
      AppendBytes(out, bytes.subspan(begin, count));
      begin += count;
    }
    literals = 0;
  };
  for (size_t i = 0; i < bytes.size();) {
    size_t run = 1;
    while (run < kMaxRun && i + run < bytes.size() && bytes[i + run] == bytes[i]) ++run;
    if (run < kMinRun) {
      literals += run;
      i += run;
      continue;
    }
    flush(i);
    out.push_back(static_cast<std::byte>(128 | (run - kMinRun)));
    out.push_back(bytes[i]);
    i += run;
  }
  flush(bytes.size());
  return out;
}

Status GearRleDecode(std::span<const std::byte> payload, std::span<std::byte> out) {
  ByteReader reader("gear rle", payload);
  size_t at = 0;
  while (reader.left() > 0) {
    uint8_t control = 0;
    VARVE_RETURN_IF_ERROR(reader.Read("control", control));
    const bool is_run = control >= 128;
    const size_t count = is_run ? (control & 127u) + kMinRun : control + 1u;
    if (count > out.size() - at) {
      return reader.Bad(fmt::format("{} bytes at {} of {}", count, at, out.size()));
    }
    std::span<const std::byte> from;
    VARVE_RETURN_IF_ERROR(
        reader.Take(is_run ? "byte of a run" : "literals", is_run ? 1 : count, from));
    if (is_run) {
      std::fill_n(out.begin() + static_cast<ptrdiff_t>(at), count, from[0]);
    } else {
      std::copy(from.begin(), from.end(), out.begin() + static_cast<ptrdiff_t>(at));
    }
    at += count;
  }
  if (at == out.size()) return Status();
  return reader.Bad(fmt::format("ends after {} bytes of {}", at, out.size()));
}

void AppendGearStream(std::span<const std::byte> bytes, const GearPredictorSet& set,
                      std::vector<std::byte>& out) {
  std::vector<std::byte> best;
  GearPredictor best_predictor = GearPredictor::kRaw;
  GearCodec best_codec = GearCodec::kRle;
  bool found = false;
  const auto consider = [&](GearPredictor predictor, GearCodec codec,
                            std::vector<std::byte> payload) {
    if (found && payload.size() >= best.size()) return;
    found = true;
    best = std::move(payload);
    best_predictor = predictor;
    best_codec = codec;
  };
  for (const GearPredictor predictor : set.predictors) {
    const std::vector<std::byte> predicted = GearPredict(predictor, bytes);
    consider(predictor, GearCodec::kRle, GearRleEncode(predicted));
    if (!set.zstd) continue;
    std::vector<std::byte> frame = CompressZstd(predicted);
    if (!frame.empty()) consider(predictor, GearCodec::kZstd, std::move(frame));
  }
  AppendNumber(out, static_cast<uint8_t>(best_predictor));
  AppendNumber(out, static_cast<uint8_t>(best_codec));
  AppendNumber(out, static_cast<uint32_t>(bytes.size()));
  AppendNumber(out, static_cast<uint32_t>(best.size()));
  AppendBytes(out, best);
}

Status ReadGearStream(ByteReader& reader, size_t raw_bytes, std::vector<std::byte>& out) {
  uint8_t mode = 0, codec = 0;
  uint32_t raw_len = 0, payload_len = 0;
  VARVE_RETURN_IF_ERROR(reader.Read("mode", mode));
  VARVE_RETURN_IF_ERROR(reader.Read("codec", codec));
  VARVE_RETURN_IF_ERROR(reader.Read("raw_len", raw_len));
  VARVE_RETURN_IF_ERROR(reader.Read("payload_len", payload_len));
  if (mode > static_cast<uint8_t>(GearPredictor::kPairDelta)) {
    return reader.Bad(fmt::format("mode {} > 3", mode));
  }
  if (codec > static_cast<uint8_t>(GearCodec::kZstd)) {
    return reader.Bad(fmt::format("codec {} > 1", codec));
  }
  if (raw_len != raw_bytes) {
    return reader.Bad(fmt::format("raw_len {} is not {}", raw_len, raw_bytes));
  }
  std::span<const std::byte> payload;
  VARVE_RETURN_IF_ERROR(reader.Take("payload", payload_len, payload));
  // RLE makes at most 131 bytes of two. zstd may make far more: there the frame sets the limit.
  out.resize(raw_bytes);
  if (codec == static_cast<uint8_t>(GearCodec::kRle)) {
    VARVE_RETURN_IF_ERROR(GearRleDecode(payload, out));
  } else {
    VARVE_RETURN_IF_ERROR(DecompressZstd("gear stream", payload, out));
  }
  GearUnpredict(static_cast<GearPredictor>(mode), out);
  return Status();
}

}  // namespace varve::store
