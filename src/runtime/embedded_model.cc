#include "runtime/embedded_model.h"

// The paths come from CMakeLists.txt, which also rebuilds this file when models/ changes. Model
// data wants the alignment of a cache line; the linker maps the section, nothing reads it at start.
#define VARVE_INCLUDE_FILE(symbol, path)    \
  asm(".section .rodata." #symbol           \
      ",\"a\"\n"                            \
      ".balign 64\n"                        \
      ".global " #symbol "_begin\n" #symbol \
      "_begin:\n"                           \
      ".incbin \"" path                     \
      "\"\n"                                \
      ".global " #symbol "_end\n" #symbol   \
      "_end:\n"                             \
      ".byte 0\n"                           \
      ".previous\n");                       \
  extern "C" const std::byte symbol##_begin[], symbol##_end[]

VARVE_INCLUDE_FILE(varve_embedded_model, VARVE_EMBEDDED_MODEL_PATH);
VARVE_INCLUDE_FILE(varve_embedded_codebook, VARVE_EMBEDDED_CODEBOOK_PATH);
VARVE_INCLUDE_FILE(varve_embedded_compressor, VARVE_EMBEDDED_COMPRESSOR_PATH);
VARVE_INCLUDE_FILE(varve_embedded_text, VARVE_EMBEDDED_TEXT_PATH);
VARVE_INCLUDE_FILE(varve_embedded_catalogue, VARVE_EMBEDDED_CATALOGUE_PATH);
VARVE_INCLUDE_FILE(varve_embedded_english, VARVE_EMBEDDED_ENGLISH_TOKENS_PATH);
VARVE_INCLUDE_FILE(varve_embedded_multilingual, VARVE_EMBEDDED_MULTILINGUAL_TOKENS_PATH);
VARVE_INCLUDE_FILE(varve_embedded_spelling, VARVE_EMBEDDED_ENGLISH_SPELLING_PATH);

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

namespace {

std::string_view TextBetween(const std::byte* begin, const std::byte* end) {
  return {reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view EmbeddedEvalText() {
  return TextBetween(varve_embedded_text_begin, varve_embedded_text_end);
}

std::string_view EmbeddedCatalogue() {
  return TextBetween(varve_embedded_catalogue_begin, varve_embedded_catalogue_end);
}

std::string_view EmbeddedEnglishSpelling() {
  return TextBetween(varve_embedded_spelling_begin, varve_embedded_spelling_end);
}

std::span<const std::byte> EmbeddedWhisperTokens(bool multilingual) {
  if (multilingual) return {varve_embedded_multilingual_begin, varve_embedded_multilingual_end};
  return {varve_embedded_english_begin, varve_embedded_english_end};
}

}  // namespace varve
