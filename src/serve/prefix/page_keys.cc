#include "serve/prefix/page_keys.h"

#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace varve::serve {
namespace {

PageKey Hash(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  PageKey key;
  std::memcpy(key.bytes.data(), digest.data(), key.bytes.size());
  return key;
}

}  // namespace

// Lengths stand before texts: no plan can end where a tenant's name begins.
PageKeys::PageKeys(uint64_t model_fingerprint, std::string_view plan, int page_tokens)
    : root_(fmt::format("varve-page-1 {:016x} {} {}:{}", model_fingerprint, page_tokens,
                        plan.size(), plan)),
      page_tokens_(page_tokens) {}

std::vector<PageKey> PageKeys::Of(std::string_view tenant, std::span<const int32_t> tokens) const {
  std::vector<PageKey> keys;
  PageKey parent = Hash(fmt::format("{} {}:{}", root_, tenant.size(), tenant));
  const auto page = static_cast<size_t>(page_tokens_);
  std::string link(sizeof(parent.bytes) + page * sizeof(int32_t), '\0');
  for (size_t begin = 0; begin + page <= tokens.size(); begin += page) {
    std::memcpy(link.data(), parent.bytes.data(), sizeof(parent.bytes));
    std::memcpy(link.data() + sizeof(parent.bytes), tokens.data() + begin, page * sizeof(int32_t));
    parent = Hash(link);
    keys.push_back(parent);
  }
  return keys;
}

}  // namespace varve::serve
