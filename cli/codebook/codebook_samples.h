// Rows to train codebooks from: K (after RoPE) and V of a model that reads windows of a text, in
// memory and as a folder.
//
// Windows begin at places that are spread evenly over the text, each with a cache of its own, so
// that a row's position is its place in the window. A folder is a KV dump (cli/lossless/kv_dump.h)
// whose tokens are those of all windows in a row, with a samples.json that says where they come
// from.

#ifndef VARVE_CLI_CODEBOOK_CODEBOOK_SAMPLES_H_
#define VARVE_CLI_CODEBOOK_CODEBOOK_SAMPLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/codebook/codebook_rows.h"
#include "cli/lossless/kv_dump.h"
#include "varve/codebook.h"
#include "varve/status.h"

namespace varve::cli {

struct SampleOptions {
  std::string model;       // empty: the embedded one
  std::string text;        // a file, - for stdin
  int64_t tokens = 32768;  // of all windows; fewer if the text has fewer
  int64_t ctx = 0;         // of a window; 0: the model's context, at most 4096
  int threads = 0;         // 0: all cores
};

struct KvSamples {
  std::string model_name;
  uint64_t model_fingerprint = 0;  // 0: not known
  std::string text_name;           // without its folder
  int64_t num_tokens = 0;
  int64_t ctx = 0;
  int num_layers = 0;
  int num_kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  std::vector<DumpRows> rows;  // [num_layers][2]: K, V; num_tokens rows each

  int dim(Part part) const { return part == Part::kKey ? key_dim : value_dim; }
  const DumpRows& of(int layer, Part part) const {
    return rows[2 * static_cast<size_t>(layer) + (part == Part::kKey ? 0 : 1)];
  }
};

// The first bytes of `count` windows, spread evenly over `size` bytes; ascending. A window has
// `bytes` bytes, which is at most size.
std::vector<size_t> WindowStarts(size_t size, size_t bytes, size_t count);

// Runs the model over the text. Refuses an empty text, and rows that do not fit into memory.
Result<KvSamples> SampleModel(const SampleOptions& options);

// DIR/layer_N/… and DIR/samples.json.
Status WriteSamples(const KvSamples& samples, const std::string& folder);
// Refuses folders with pieces that are missing or do not fit together. A folder of `varve dump` is
// fine; its model is not known.
Result<KvSamples> ReadSamples(const std::string& folder);

// The rows of one part, in groups of a grain. Not owned.
class SampleRows final : public RowSource {
 public:
  SampleRows(const KvSamples& samples, Part part, CodebookGrain grain)
      : samples_(samples), part_(part), grain_(grain) {}
  size_t NumRows(int group) const override;
  void ReadRow(int group, size_t row, float* to) const override;
  std::string GroupName(int group) const override;

 private:
  const KvSamples& samples_;
  Part part_;
  CodebookGrain grain_;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_CODEBOOK_SAMPLES_H_
