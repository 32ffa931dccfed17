#include "cli/model_argument.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "runtime/embedded_model.h"

namespace varve::cli {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;

Result<std::shared_ptr<const GgufFile>> OpenEmbeddedModel() {
  const std::span<const std::byte> bytes = EmbeddedModel();
  if (bytes.empty()) {
    return FailedPrecondition("this build has no embedded model; name a GGUF file with -m");
  }
  return GgufFile::FromMemory(bytes, "the embedded model");
}

}  // namespace

Result<LoadedModel> LoadModel(const std::string& path) {
  auto file = path.empty() ? OpenEmbeddedModel() : GgufFile::Open(path);
  if (!file.ok()) return file.status();
  auto model = LlamaModel::Load(*file);
  if (!model.ok()) return model.status();
  auto tokenizer = Tokenizer::Create(**file);
  if (!tokenizer.ok()) return tokenizer.status();
  LoadedModel loaded;
  loaded.name =
      path.empty() ? "the embedded model" : std::filesystem::path(path).filename().string();
  loaded.file = std::move(*file);
  loaded.model = std::move(*model);
  loaded.tokenizer = std::move(*tokenizer);
  return loaded;
}

Result<std::string> ReadTextFile(const std::string& path) {
  const auto fail = [&](const char* what) {
    return IoError(fmt::format("\"{}\": cannot be {}: {}", path, what, std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return fail("opened");
  std::string text;
  std::array<char, size_t{64} << 10> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), got);
    if (text.size() > kMaxTextBytes) {
      return InvalidArgument(fmt::format("\"{}\": more than {} bytes", path, kMaxTextBytes));
    }
  }
  if (std::ferror(file.get()) != 0) return fail("read");
  return text;
}

}  // namespace varve::cli
