#include "runtime/audio/log_mel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "runtime/audio/spectrum.h"
#include "tests/test_data.h"
#include "varve/executor.h"

namespace varve {
namespace log_mel_test {
namespace {

// The sound of tools/make_log_mel_golden.py: sines and noise, the second half 60 dB lower.
std::vector<float> GoldenSound(size_t count) {
  std::vector<float> samples;
  uint64_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double noise = static_cast<double>(state >> 40) / (1 << 23) - 1;
    const double n = static_cast<double>(i);
    const double x = 0.3 * std::sin(2 * std::numbers::pi * 440 * n / 16000) +
                     0.1 * std::sin(2 * std::numbers::pi * 3217 * n / 16000 + 1) + 0.02 * noise;
    samples.push_back(static_cast<float>(i < 6000 ? x : 1e-3 * x));
  }
  return samples;
}

nlohmann::json Golden() {
  std::ifstream file(TestDataPath("audio/log_mel.json"));
  return nlohmann::json::parse(file);
}

TEST(LogMel, IsThatOfTheDefinition) {
  const nlohmann::json golden = Golden();
  const std::vector<float> samples = GoldenSound(golden.at("samples"));
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  for (const int mels : {80, 128}) {
    const LogMel result = ComputeLogMel(samples, mels, *executor);
    EXPECT_EQ(result.mels, mels);
    EXPECT_EQ(result.frames, 70);
    EXPECT_EQ(result.stride(), 3070);
    ASSERT_EQ(result.values.size(), static_cast<size_t>(mels) * 3070);
    const nlohmann::json& columns = golden.at("log_mel").at(std::to_string(mels));
    for (size_t i = 0; i < golden.at("frames").size(); ++i) {
      const size_t frame = golden.at("frames")[i];
      for (size_t m = 0; m < static_cast<size_t>(mels); ++m) {
        ASSERT_NEAR(result.values[m * 3070 + frame], columns[i][m].get<double>(), 1e-6)
            << mels << " mels, frame " << frame << ", mel " << m;
      }
    }
  }
}

TEST(LogMel, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> samples = GoldenSound(50000);
  const LogMel alone = ComputeLogMel(samples, 80, *MakeThreadPool(1));
  for (const int threads : {2, 3, 8}) {
    EXPECT_EQ(ComputeLogMel(samples, 80, *MakeThreadPool(threads)).values, alone.values) << threads;
  }
}

TEST(LogMel, OfSilenceAndOfNothingIsFlat) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{160}, size_t{1000}}) {
    const LogMel result = ComputeLogMel(std::vector<float>(count), 80, *executor);
    EXPECT_EQ(result.frames, static_cast<int>(count / 160));
    // log10 of 1e-10 is -10.
    EXPECT_EQ(result.values, std::vector<float>(80 * static_cast<size_t>(result.stride()), -1.5F));
  }
}

TEST(LogMel, OfAShortSoundIsReflectedIntoItsPadding) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  // One sample in the middle of frame 0, nothing on either side: a flat spectrum of power 1.
  const LogMel click = ComputeLogMel(std::vector<float>{1.0F}, 80, *executor);
  const std::vector<float> filters = MelFilters(80);
  double peak = -10;
  std::vector<double> expected(80);
  for (size_t m = 0; m < 80; ++m) {
    double sum = 0;
    for (size_t b = 0; b < kMelBins; ++b) sum += static_cast<double>(filters[m * kMelBins + b]);
    expected[m] = std::log10(sum);
    peak = std::max(peak, expected[m]);
  }
  for (size_t m = 0; m < 80; ++m) {
    EXPECT_NEAR(click.values[m * 3000], (expected[m] + 4) / 4, 1e-6) << m;
    EXPECT_NEAR(click.values[m * 3000 + 2], (peak - 8 + 4) / 4, 1e-6) << m;
  }
}

TEST(LogMel, TakesTheLoudestSamplesThatTheReaderGives) {
  const LogMel result = ComputeLogMel(std::vector<float>(4000, 1e6F), 128, *MakeThreadPool(1));
  EXPECT_TRUE(std::all_of(result.values.begin(), result.values.end(),
                          [](float x) { return std::isfinite(x); }));
}

TEST(MelFilters, AreSlaneys) {
  const nlohmann::json golden = Golden();
  for (const int mels : {80, 128}) {
    const std::vector<float> filters = MelFilters(mels);
    ASSERT_EQ(filters.size(), static_cast<size_t>(mels) * kMelBins);
    const nlohmann::json& sums = golden.at("filter_sums").at(std::to_string(mels));
    for (size_t m = 0; m < static_cast<size_t>(mels); ++m) {
      double sum = 0;
      for (size_t b = 0; b < kMelBins; ++b) sum += static_cast<double>(filters[m * kMelBins + b]);
      EXPECT_NEAR(sum, sums[m].get<double>(), 1e-8) << mels << " mels, filter " << m;
    }
  }
  // As mel_filters.npz of OpenAI's package has them.
  const std::vector<float> filters = MelFilters(80);
  EXPECT_NEAR(filters[1], 0.02486259, 1e-8);
  EXPECT_NEAR(filters[40 * kMelBins + 42], 0.0054111, 1e-7);
  EXPECT_NEAR(filters[40 * kMelBins + 43], 0.01473557, 1e-8);
  EXPECT_NEAR(filters[40 * kMelBins + 44], 0.00651819, 1e-8);
}

TEST(PowerSpectra, AreThoseOfADirectTransform) {
  constexpr size_t kN = kSpectrumSamples;
  PowerSpectra spectra;
  std::vector<std::vector<double>> windows(kSpectrumWindows, std::vector<double>(kN));
  const std::vector<float> sound = GoldenSound(kN * kSpectrumWindows);
  for (size_t w = 0; w < kSpectrumWindows; ++w) {
    for (size_t n = 0; n < kN; ++n) {
      windows[w][n] = static_cast<double>(sound[w * kN + n]);
      spectra.input(w)[n * PowerSpectra::kInputStride] = windows[w][n];
    }
  }
  spectra.Compute();
  for (size_t w = 0; w < kSpectrumWindows; ++w) {
    for (size_t b = 0; b < kSpectrumBins; ++b) {
      std::complex<double> sum = 0;
      for (size_t n = 0; n < kN; ++n) {
        sum += windows[w][n] *
               std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(b * n % kN) / kN);
      }
      ASSERT_NEAR(spectra.power(b)[w], std::norm(sum), 1e-12 + 1e-10 * std::norm(sum))
          << "window " << w << ", bin " << b;
    }
  }
}

}  // namespace
}  // namespace log_mel_test
}  // namespace varve
