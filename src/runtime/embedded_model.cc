// No model is built in yet: models/ has none.

#include "runtime/embedded_model.h"

#include <string_view>

namespace varve {

std::span<const std::byte> EmbeddedModel() { return {}; }

std::string_view EmbeddedEvalText();
std::string_view EmbeddedEvalText() { return {}; }

}  // namespace varve
