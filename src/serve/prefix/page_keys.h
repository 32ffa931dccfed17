// PageKeys: the names of full pages. A page's key is a hash of the model's fingerprint, the plan,
// the tenant and all tokens up to the page's end, chained: the key of a page is that of the page
// before it with its own tokens. Equal keys stand for equal content, wherever and by whom it was
// computed.
//
// SHA-256, cut to 128 bits: tenants choose tokens, and nobody must be able to choose some that meet
// the key of another tenant's page. Pure, any thread.

#ifndef VARVE_SERVE_PREFIX_PAGE_KEYS_H_
#define VARVE_SERVE_PREFIX_PAGE_KEYS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/tiers/page_tier.h"

namespace varve::serve {

class PageKeys {
 public:
  // `plan` is the canonical text (PrintPlan); page_tokens belong to it.
  PageKeys(uint64_t model_fingerprint, std::string_view plan, int page_tokens);

  int page_tokens() const { return page_tokens_; }

  // One key per full page of `tokens`; the rest has none.
  std::vector<PageKey> Of(std::string_view tenant, std::span<const int32_t> tokens) const;

 private:
  std::string root_;  // what every chain begins with
  int page_tokens_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_PREFIX_PAGE_KEYS_H_
