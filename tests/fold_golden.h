// The golden compressors of tests/data/fold (tools/make_fold_golden.py): .pth files that PyTorch
// has written, rows of K and V, and what PyTorch folds them to.

#ifndef VARVE_TESTS_FOLD_GOLDEN_H_
#define VARVE_TESTS_FOLD_GOLDEN_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>
#include "tests/test_data.h"

namespace varve {

// The first image_tokens + text_tokens rows become `rows` rows.
struct FoldGoldenCase {
  int image_tokens = 0;
  int text_tokens = 0;
  int rows = 0;
  // [layers, heads, rows, head_dim], computed by PyTorch in f32
  std::span<const float> keys, values;
  // The same computed in the dtype of the weights; for f32 and f64 equal to the spans above.
  std::span<const float> native_keys, native_values;
};

struct FoldGolden {
  std::string name;
  std::string layout;  // "flat", "compressor", "model_state_dict.compressor"
  std::string dtype;   // of the .pth: "f16", "bf16", "f32", "f64"
  int layers = 0, heads = 0, head_dim = 0, factor = 0, min_seq_len = 0, tokens = 0;
  bool has_image = false, has_bias = false;
  std::vector<std::string> ignored;     // keys
  std::string pth;                      // path
  std::string bin;                      // path, or empty
  std::vector<float> numbers;           // of the file; the spans are of these
  std::span<const float> keys, values;  // [layers, heads, tokens, head_dim], exact in f16
  std::vector<FoldGoldenCase> cases;
};

// Reads the goldens of TestDataPath(); throws if a file is not as expected.
inline std::vector<FoldGolden> LoadFoldGoldens(const std::string& data_folder) {
  const std::string folder = data_folder + "/fold/";
  std::ifstream index(folder + "index.json");
  const nlohmann::json document = nlohmann::json::parse(index);
  std::vector<FoldGolden> goldens;
  for (const nlohmann::json& model : document.at("models")) {
    FoldGolden& golden = goldens.emplace_back();
    golden.name = model.at("name");
    golden.layout = model.at("layout");
    golden.dtype = model.at("dtype");
    golden.layers = model.at("layers");
    golden.heads = model.at("heads");
    golden.head_dim = model.at("head_dim");
    golden.factor = model.at("factor");
    golden.min_seq_len = model.at("min_seq_len");
    golden.tokens = model.at("tokens");
    golden.has_image = model.at("image");
    golden.has_bias = model.at("bias");
    golden.ignored = model.at("ignored");
    golden.pth = folder + model.at("pth").get<std::string>();
    if (model.contains("bin")) golden.bin = folder + model.at("bin").get<std::string>();
    golden.numbers.resize(model.at("numbers"));
    std::ifstream file(folder + model.at("file").get<std::string>(), std::ios::binary);
    file.exceptions(std::ios::failbit);
    file.read(reinterpret_cast<char*>(golden.numbers.data()),
              static_cast<std::streamsize>(golden.numbers.size() * sizeof(float)));
    // The numbers of a vector stay where they are when the golden moves.
    const std::span<const float> all(golden.numbers);
    const auto rows_of = [&](const nlohmann::json& at, int rows) {
      return all.subspan(at.get<size_t>(),
                         size_t{1} * golden.layers * golden.heads * rows * golden.head_dim);
    };
    golden.keys = rows_of(model.at("rows").at("keys"), golden.tokens);
    golden.values = rows_of(model.at("rows").at("values"), golden.tokens);
    for (const nlohmann::json& given : model.at("cases")) {
      FoldGoldenCase& made = golden.cases.emplace_back();
      made.image_tokens = given.at("image_tokens");
      made.text_tokens = given.at("text_tokens");
      made.rows = given.at("rows");
      made.keys = made.native_keys = rows_of(given.at("keys"), made.rows);
      made.values = made.native_values = rows_of(given.at("values"), made.rows);
      if (!given.contains("native_keys")) continue;
      made.native_keys = rows_of(given.at("native_keys"), made.rows);
      made.native_values = rows_of(given.at("native_values"), made.rows);
    }
  }
  return goldens;
}

}  // namespace varve

#endif  // VARVE_TESTS_FOLD_GOLDEN_H_
