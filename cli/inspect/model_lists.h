// The keys and the tensors of a GGUF file as tables for people and as JSON. Long values are cut:
// a vocabulary has a hundred thousand strings, a chat template pages of text.

#ifndef VARVE_CLI_INSPECT_MODEL_LISTS_H_
#define VARVE_CLI_INSPECT_MODEL_LISTS_H_

#include <nlohmann/json.hpp>

#include "cli/report/output.h"
#include "runtime/gguf/gguf_file.h"

namespace varve::cli {

TextTable MetadataTable(const GgufFile& file);
TextTable TensorTable(const GgufFile& file);

// [{"key", "type", "count", "value"}]: arrays have "count", and their first elements as the value;
// arrays of arrays have no value.
nlohmann::ordered_json MetadataJson(const GgufFile& file);
// [{"name", "dims", "type", "bytes"}]
nlohmann::ordered_json TensorJson(const GgufFile& file);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_MODEL_LISTS_H_
