// Tells the three kinds of Whisper files apart by their first bytes.

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "runtime/whisper/whisper_ggml_format.h"
#include "runtime/whisper/whisper_tensors.h"

namespace varve {

WhisperFileKind WhisperKindOf(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  if (magic == kWhisperGgmlMagic) return WhisperFileKind::kGgml;
  // Behind u32 version, u16 size.
  constexpr std::string_view kSpec("WhisperSpec\0", 12);
  if (text.size() > 6 && text.substr(6).starts_with(kSpec)) return WhisperFileKind::kCt2;
  // A zip, or the pickle of an old PyTorch, which its reader names.
  if (text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02\x8A\x0A")) {
    return WhisperFileKind::kPt;
  }
  return WhisperFileKind::kNone;
}

const char* WhisperFileKindName(WhisperFileKind kind) {
  switch (kind) {
    case WhisperFileKind::kGgml:
      return "ggml";
    case WhisperFileKind::kPt:
      return "PyTorch";
    case WhisperFileKind::kCt2:
      return "CTranslate2";
    case WhisperFileKind::kNone:
      break;
  }
  return "none";
}

Result<WhisperTensors> ReadWhisperFile(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  switch (WhisperKindOf(file->bytes())) {
    case WhisperFileKind::kGgml:
      return ReadWhisperGgml(file->bytes(), path);
    case WhisperFileKind::kPt:
      return ReadWhisperPt(file->bytes(), path);
    case WhisperFileKind::kCt2:
      return ReadWhisperCt2(file->bytes(), path);
    case WhisperFileKind::kNone:
      break;
  }
  return InvalidArgument(
      fmt::format("{}: is no Whisper model: neither a ggml file (ggml-*.bin), nor a .pt of OpenAI, "
                  "nor a model.bin of CTranslate2",
                  path));
}

}  // namespace varve
