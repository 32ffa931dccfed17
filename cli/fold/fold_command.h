// `varve fold`: compressors of fold=: conversion from PyTorch, and what one is.

#ifndef VARVE_CLI_FOLD_FOLD_COMMAND_H_
#define VARVE_CLI_FOLD_FOLD_COMMAND_H_

#include <cstdint>
#include <string>

#include "runtime/torch/compressor_convert.h"
#include "varve/compressor.h"
#include "varve/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

struct FoldConvertOptions {
  std::string input, output;
  std::string dtype = "fp16";
  std::string prefix_order, slot_order;  // empty: the default
  CompressorConvertOptions convert;      // its dtype is `dtype`
};
// Writes the compressor and says on stdout what it is and which keys were ignored.
Status ConvertCompressor(const FoldConvertOptions& options);
void AddFoldConvert(CLI::App* parent, int* exit_code);

struct FoldInspectOptions {
  std::string path;
  std::string prefix_order, slot_order;
  std::string json;  // a file, or "-" for stdout
};
// Whether the file begins as a compressor does.
bool IsCompressorFile(const std::string& path);
std::string RenderCompressor(const std::string& name, const Compressor& compressor, bool colour);
Status InspectCompressor(const FoldInspectOptions& options);
void AddFoldInspect(CLI::App* parent, int* exit_code);

struct FoldBaselineOptions {
  std::string like, output;
  std::string kind = "mean";  // or "random"
  uint64_t seed = 1;
};
Status WriteBaseline(const FoldBaselineOptions& options);
void AddFoldBaseline(CLI::App* parent, int* exit_code);

}  // namespace varve::cli

#endif  // VARVE_CLI_FOLD_FOLD_COMMAND_H_
