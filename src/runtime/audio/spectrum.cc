#include "runtime/audio/spectrum.h"

#include <cmath>
#include <numbers>

namespace varve {
namespace {

// exp(-2 pi i k / 400).
struct Roots {
  std::array<double, kSpectrumSamples> re;
  std::array<double, kSpectrumSamples> im;
};

const Roots& TheRoots() {
  static const Roots roots = [] {
    Roots r;
    for (size_t k = 0; k < kSpectrumSamples; ++k) {
      const double angle = -2 * std::numbers::pi * static_cast<double>(k) / kSpectrumSamples;
      r.re[k] = std::cos(angle);
      r.im[k] = std::sin(angle);
    }
    return r;
  }();
  return roots;
}

struct Complex {
  double re;
  double im;
};

inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
inline Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline Complex operator*(double s, Complex a) { return {s * a.re, s * a.im}; }
inline Complex TimesMinusI(Complex a) { return {a.im, -a.re}; }

// x becomes its transform of 4 points.
inline void Butterfly(std::array<Complex, 4>& x) {
  const Complex sum02 = x[0] + x[2];
  const Complex difference02 = x[0] - x[2];
  const Complex sum13 = x[1] + x[3];
  const Complex turned13 = TimesMinusI(x[1] - x[3]);
  x = {sum02 + sum13, difference02 + turned13, sum02 - sum13, difference02 - turned13};
}

// Of 5 points: inputs k and 5 - k meet conjugate roots, so their sums and differences suffice.
inline void Butterfly(std::array<Complex, 5>& x) {
  constexpr double kCos1 = 0.30901699437494742410;   // cos(2 pi / 5)
  constexpr double kCos2 = -0.80901699437494742410;  // cos(4 pi / 5)
  constexpr double kSin1 = 0.95105651629515357212;
  constexpr double kSin2 = 0.58778525229247312917;
  const Complex sum14 = x[1] + x[4];
  const Complex sum23 = x[2] + x[3];
  const Complex difference14 = x[1] - x[4];
  const Complex difference23 = x[2] - x[3];
  const Complex even1 = x[0] + kCos1 * sum14 + kCos2 * sum23;
  const Complex even2 = x[0] + kCos2 * sum14 + kCos1 * sum23;
  const Complex odd1 = TimesMinusI(kSin1 * difference14 + kSin2 * difference23);
  const Complex odd2 = TimesMinusI(kSin2 * difference14 - kSin1 * difference23);
  x = {x[0] + sum14 + sum23, even1 + odd1, even2 + odd2, even2 - odd2, even1 - odd1};
}

}  // namespace

struct PowerSpectra::Stages {
  // One step of Stockham's algorithm. The numbers are kParts * Radix runs of Run complex ones (each
  // in all pairs). Part p takes the runs p, p + kParts, ... and puts their transforms of Radix
  // points side by side, turned by powers of exp(-2 pi i p / (Radix * kParts)).
  template <size_t Radix, size_t Run>
  static void Step(const Planes& in, Planes& out) {
    constexpr size_t kRun = Run * kPairs;
    constexpr size_t kParts = kSpectrumSamples / (Radix * Run);
    const Roots& roots = TheRoots();
    for (size_t part = 0; part < kParts; ++part) {
      std::array<Complex, Radix> w;
      for (size_t j = 0; j < Radix; ++j) {
        w[j] = {roots.re[j * part * Run], roots.im[j * part * Run]};
      }
      const double* in_re = in.re.data() + part * kRun;
      const double* in_im = in.im.data() + part * kRun;
      double* out_re = out.re.data() + part * Radix * kRun;
      double* out_im = out.im.data() + part * Radix * kRun;
      for (size_t i = 0; i < kRun; ++i) {
        std::array<Complex, Radix> x;
        for (size_t k = 0; k < Radix; ++k) {
          x[k] = {in_re[k * kParts * kRun + i], in_im[k * kParts * kRun + i]};
        }
        Butterfly(x);
        for (size_t j = 0; j < Radix; ++j) {
          const Complex y = x[j] * w[j];
          out_re[j * kRun + i] = y.re;
          out_im[j * kRun + i] = y.im;
        }
      }
    }
  }
};

void PowerSpectra::Compute() {
  Stages::Step<5, 1>(a_, b_);
  Stages::Step<5, 5>(b_, a_);
  Stages::Step<4, 25>(a_, b_);
  Stages::Step<4, 100>(b_, a_);
  // The windows of a pair are x and y of z = x + iy: X[b] = (Z[b] + conj Z[-b]) / 2, and
  // Y[b] = (Z[b] - conj Z[-b]) / 2i.
  for (size_t bin = 0; bin < kSpectrumBins; ++bin) {
    const size_t mirror = (kSpectrumSamples - bin) % kSpectrumSamples;
    const double* re = a_.re.data() + bin * kPairs;
    const double* im = a_.im.data() + bin * kPairs;
    const double* mirror_re = a_.re.data() + mirror * kPairs;
    const double* mirror_im = a_.im.data() + mirror * kPairs;
    double* power = power_.data() + bin * kSpectrumWindows;
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const double x_re = 0.5 * (re[pair] + mirror_re[pair]);
      const double x_im = 0.5 * (im[pair] - mirror_im[pair]);
      const double y_re = 0.5 * (im[pair] + mirror_im[pair]);
      const double y_im = 0.5 * (mirror_re[pair] - re[pair]);
      power[2 * pair] = x_re * x_re + x_im * x_im;
      power[2 * pair + 1] = y_re * y_re + y_im * y_im;
    }
  }
}

}  // namespace varve
