#include "serve/page/live_page.h"

#include <string_view>

#include "base/embedded_file.h"

VARVE_EMBED_FILE(varve_live_html, VARVE_LIVE_PAGE "live.html");
VARVE_EMBED_FILE(varve_live_css, VARVE_LIVE_PAGE "live.css");
VARVE_EMBED_FILE(varve_live_js, VARVE_LIVE_PAGE "live.js");

namespace varve::serve {
namespace {

void Replace(std::string& text, std::string_view place, std::string_view by) {
  const size_t at = text.find(place);
  if (at != std::string::npos) text.replace(at, place.size(), by);
}

}  // namespace

std::string LivePage() {
  std::string page(EmbeddedText(varve_live_html_begin, varve_live_html_end));
  Replace(page, "/*css*/", EmbeddedText(varve_live_css_begin, varve_live_css_end));
  Replace(page, "/*js*/", EmbeddedText(varve_live_js_begin, varve_live_js_end));
  return page;
}

}  // namespace varve::serve
