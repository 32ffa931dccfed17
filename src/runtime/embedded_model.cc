#include "runtime/embedded_model.h"

#include "base/embedded_file.h"

VARVE_EMBED_FILE(varve_embedded_model, VARVE_EMBEDDED_MODEL_PATH);
VARVE_EMBED_FILE(varve_embedded_codebook, VARVE_EMBEDDED_CODEBOOK_PATH);
VARVE_EMBED_FILE(varve_embedded_compressor, VARVE_EMBEDDED_COMPRESSOR_PATH);
VARVE_EMBED_FILE(varve_embedded_text, VARVE_EMBEDDED_TEXT_PATH);
VARVE_EMBED_FILE(varve_embedded_catalogue, VARVE_EMBEDDED_CATALOGUE_PATH);
VARVE_EMBED_FILE(varve_embedded_english, VARVE_EMBEDDED_ENGLISH_TOKENS_PATH);
VARVE_EMBED_FILE(varve_embedded_multilingual, VARVE_EMBEDDED_MULTILINGUAL_TOKENS_PATH);
VARVE_EMBED_FILE(varve_embedded_spelling, VARVE_EMBEDDED_ENGLISH_SPELLING_PATH);

namespace varve {

std::span<const std::byte> EmbeddedModel() {
  return {varve_embedded_model_begin, varve_embedded_model_end};
}

std::span<const std::byte> EmbeddedCodebook() {
  return {varve_embedded_codebook_begin, varve_embedded_codebook_end};
}

std::span<const std::byte> EmbeddedCompressor() {
  return {varve_embedded_compressor_begin, varve_embedded_compressor_end};
}

std::string_view EmbeddedEvalText() {
  return EmbeddedText(varve_embedded_text_begin, varve_embedded_text_end);
}

std::string_view EmbeddedCatalogue() {
  return EmbeddedText(varve_embedded_catalogue_begin, varve_embedded_catalogue_end);
}

std::string_view EmbeddedEnglishSpelling() {
  return EmbeddedText(varve_embedded_spelling_begin, varve_embedded_spelling_end);
}

std::span<const std::byte> EmbeddedWhisperTokens(bool multilingual) {
  if (multilingual) return {varve_embedded_multilingual_begin, varve_embedded_multilingual_end};
  return {varve_embedded_english_begin, varve_embedded_english_end};
}

}  // namespace varve
