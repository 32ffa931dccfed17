// Codebook: what product quantization (rungs pqMxB) has learned of a model's keys and values.
//
// A row of `dim` values is cut into M sub-vectors; each is stored as the index of the nearest of
// 2^bits centroids. A codebook holds tables of centroids: one per part (K or V) and size (M, bits),
// each with a group of centroids per KV head, per layer, or for the whole model. Rows are divided
// by their norm before they are coded, so centroids are of rows of length 1.
//
// Centroids are bytes: byte b of sub-space m means scales[m] * (b - 128). That costs 1 % of the
// error of 4-bit codes at most, halves the codebook, and lets attention look bytes up.
//
// A codebook is plain data until it is checked: CheckCodebook says whether a cache can use it, and
// parsing checks. Immutable when shared; any number of caches may use one.

#ifndef VARVE_CODEBOOK_H_
#define VARVE_CODEBOOK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/export.h"
#include "varve/part.h"
#include "varve/status.h"

namespace varve {

// How many rows share centroids.
enum class CodebookGrain : uint8_t { kModel = 0, kLayer = 1, kHead = 2 };

// "model", "layer", "head".
VARVE_API const char* CodebookGrainName(CodebookGrain grain);

struct CodebookTable {
  Part part = Part::kKey;
  int dim = 0;            // head_dim: a multiple of 16 up to 512
  int num_subspaces = 0;  // M: divides dim
  int bits = 0;           // 4 … 12
  CodebookGrain grain = CodebookGrain::kHead;
  // [groups, M]; 1e-16 … 16
  std::vector<float> scales;
  // [groups, M, dim / M, 2^bits]: of every channel the bytes of all centroids; 1 … 255
  std::vector<uint8_t> centroids;
  // Empty, or [groups, dim, dim] f16 bits: rows are multiplied by this orthonormal matrix (row
  // major: y[i] = sum over j of rotation[i][j] * x[j]) before they are cut (OPQ).
  std::vector<uint16_t> rotation;

  int sub_dim() const { return dim / num_subspaces; }
  int num_codes() const { return 1 << bits; }
  size_t bytes() const {
    return scales.size() * sizeof(float) + centroids.size() + rotation.size() * sizeof(uint16_t);
  }
  bool operator==(const CodebookTable&) const = default;
};

struct Codebook {
  int num_layers = 0;
  int num_kv_heads = 0;
  uint64_t model_fingerprint = 0;     // of the model whose rows were learned; 0: any of that shape
  std::string model_name;             // at most 256 bytes; for people
  std::string trained_on;             // at most 1024 bytes; text, tokens, seed; for people
  std::vector<CodebookTable> tables;  // 1 … 64; no two of the same part and size

  bool operator==(const Codebook&) const = default;

  // Groups of centroids in a table of that grain, and the one that a layer's head uses.
  VARVE_API int NumGroups(CodebookGrain grain) const;
  VARVE_API int GroupOf(CodebookGrain grain, int layer, int kv_head) const;
  // The table of that part and size, or null.
  VARVE_API const CodebookTable* Find(Part part, int num_subspaces, int bits) const;
};

// Ok if every field is within its limits, sizes agree, tables of a part have one dim, and rotations
// are orthonormal as far as f16 can say. The message names field, value and limit.
VARVE_API Status CheckCodebook(const Codebook& codebook);

// The file (docs/format/codebook.md). Serialize requires CheckCodebook to be ok.
VARVE_API std::vector<std::byte> SerializeCodebook(const Codebook& codebook);
// `name` is for messages. Whatever the bytes are, the answer is a Codebook that passes
// CheckCodebook, or a Status: kInvalidArgument if it is no codebook, kUnimplemented for another
// version, kDataLoss if it is damaged.
VARVE_API Result<Codebook> ParseCodebook(std::span<const std::byte> bytes, const std::string& name);
VARVE_API Result<std::shared_ptr<const Codebook>> LoadCodebook(const std::string& path);
// Atomic: the file is there whole or not at all.
VARVE_API Status SaveCodebook(const Codebook& codebook, const std::string& path);

// XXH3-64 of the tables (not of the names): what a file of pages refers to its codebook by.
VARVE_API uint64_t CodebookHash(const Codebook& codebook);

}  // namespace varve

#endif  // VARVE_CODEBOOK_H_
