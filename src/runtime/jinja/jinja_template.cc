#include "runtime/jinja/jinja_template.h"

#include <fmt/format.h>

namespace varve::jinja {

Result<Template> Template::Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument(fmt::format("{} bytes > {}", source.size(), kMaxSourceBytes));
  }
  VARVE_ASSIGN_OR_RETURN(Block block, ParseTemplate(source));
  return Template(std::move(block));
}

}  // namespace varve::jinja
