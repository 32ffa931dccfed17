// VARVE_EMBED_FILE: the bytes of a file as part of the program. The path is a string literal that
// the build gives (CMakeLists.txt), which also compiles the source again when the file changes. The
// linker maps the section; nothing reads it at start.

#ifndef VARVE_BASE_EMBEDDED_FILE_H_
#define VARVE_BASE_EMBEDDED_FILE_H_

#include <cstddef>
#include <string_view>

// Declares `symbol`_begin and `symbol`_end, aligned to a cache line as model data wants it.
#define VARVE_EMBED_FILE(symbol, path)      \
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

namespace varve {

// An embedded file as text.
inline std::string_view EmbeddedText(const std::byte* begin, const std::byte* end) {
  return {reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)};
}

}  // namespace varve

#endif  // VARVE_BASE_EMBEDDED_FILE_H_
