// The model that ships with Varve, its codebook, its compressor, a text to evaluate on, the list of
// models that can be brought and Whisper's vocabularies (models/), as bytes of the program itself:
// mapped with the executable and read lazily, like any model file.

#ifndef VARVE_RUNTIME_EMBEDDED_MODEL_H_
#define VARVE_RUNTIME_EMBEDDED_MODEL_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace varve {

// A GGUF file for GgufFile::FromMemory; lives as long as the program.
std::span<const std::byte> EmbeddedModel();

// The codebook of that model for ParseCodebook: per KV head, K 64x8 64x7 64x6 64x4, V 64x8 64x6
// 64x5 64x4, trained on text that evaluation does not use.
std::span<const std::byte> EmbeddedCodebook();

// The compressor of that model for ParseCompressor: four tokens become a row; trained on text that
// evaluation does not use.
std::span<const std::byte> EmbeddedCompressor();

// English prose that the model has not seen in training; models/README.md says what it is.
std::string_view EmbeddedEvalText();

// models/catalogue.json: the models that `./dev models` brings.
std::string_view EmbeddedCatalogue();

// The ordinary tokens of Whisper models (models/README.md): of the English ones, or of those that
// know other languages. zstd; WhisperTokens (runtime/whisper) reads them.
std::span<const std::byte> EmbeddedWhisperTokens(bool multilingual);

// models/whisper-spelling.txt: British words and their American forms; AmericanSpelling reads it.
std::string_view EmbeddedEnglishSpelling();

}  // namespace varve

#endif  // VARVE_RUNTIME_EMBEDDED_MODEL_H_
