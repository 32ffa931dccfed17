// How fast each pair of channels turns, from pairs of rows a known distance apart; private to
// src/store.

#ifndef VARVE_STORE_ROTATION_FITTER_H_
#define VARVE_STORE_ROTATION_FITTER_H_

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

namespace varve::store {

// Two rows of one token.
struct Observation {
  double distance = 0;                      // tokens, > 0
  std::vector<std::complex<float>> turned;  // [pairs] argument: the angle, modulo a turn
};

// 2^-32 turns a token, per pair. Frequencies must fall from pair to pair, as those of RoPE do in
// all its variants. None if no frequencies explain what was seen.
std::optional<std::vector<uint32_t>> FitTurns(std::vector<Observation> seen);

}  // namespace varve::store

#endif  // VARVE_STORE_ROTATION_FITTER_H_
