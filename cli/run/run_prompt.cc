#include "cli/run/run_prompt.h"

#include <unistd.h>

#include <fmt/format.h>

namespace varve::cli {
namespace {

// A vocabulary may have nothing for a text; generating needs a token to begin with.
Result<std::vector<int32_t>> RefuseNoTokens(const LoadedModel& model, std::vector<int32_t> tokens) {
  if (!tokens.empty()) return tokens;
  return InvalidArgument(
      fmt::format("prompt: the vocabulary of {} has no token for this text", model.name));
}

}  // namespace

bool PromptIsFromStdin(const RunOptions& options) {
  if (options.prompt) return false;
  return options.file == "-" || (options.file.empty() && isatty(STDIN_FILENO) == 0);
}

Result<std::string> ReadPromptText(const RunOptions& options) {
  if (options.prompt) return *options.prompt;
  const bool from_stdin = PromptIsFromStdin(options);
  if (options.file.empty() && !from_stdin) return std::string();
  Result<std::string> text = ReadTextFile(from_stdin ? "-" : options.file);
  if (text.ok() && text->ends_with('\n')) text->pop_back();
  return text;
}

Result<std::vector<int32_t>> EncodePrompt(const LoadedModel& model, const std::string& text) {
  if (!text.empty()) return RefuseNoTokens(model, model.tokenizer->Encode(text, {}));
  if (model.tokenizer->bos() < 0) {
    return InvalidArgument(fmt::format(
        "prompt: empty, and {} has no token that begins a text; give -p or -f", model.name));
  }
  return std::vector<int32_t>{model.tokenizer->bos()};
}

Result<std::string> ChatFormatOf(const RunOptions& options, const LoadedModel& model) {
  if (!options.chat_format.empty()) {
    // Unknown names are refused here, before anything runs.
    const ChatMessage probe{"user", ""};
    VARVE_RETURN_IF_ERROR(FormatChat(options.chat_format, {&probe, 1}).status());
    return options.chat_format;
  }
  Result<std::string_view> format = DetectChatFormat(*model.file);
  if (format.ok()) return std::string(*format);
  std::string names;
  for (const std::string_view name : ChatFormatNames()) names += fmt::format(" {}", name);
  return Status(format.status().code(),
                fmt::format("--chat: {}; name a format:{}", format.status().message(), names));
}

Result<std::vector<int32_t>> EncodeChat(const RunOptions& options, const LoadedModel& model,
                                        const std::string& format,
                                        std::span<const ChatMessage> messages) {
  VARVE_ASSIGN_OR_RETURN(std::string text, FormatChat(format, messages));
  return RefuseNoTokens(model, model.tokenizer->Encode(text, {.add_special = options.load.empty(),
                                                              .parse_special = true}));
}

Result<std::vector<int32_t>> PromptTokens(const RunOptions& options, const LoadedModel& model,
                                          const std::string& text) {
  if (!options.chat) {
    Result<std::vector<int32_t>> tokens =
        options.load.empty() ? EncodePrompt(model, text)
                             : model.tokenizer->Encode(text, {.add_special = false});
    if (!tokens.ok() || options.prompt_tokens == 0) return tokens;
    if (options.prompt_tokens > static_cast<int64_t>(tokens->size())) {
      return InvalidArgument(fmt::format("--prompt-tokens {}: the prompt has only {} tokens",
                                         options.prompt_tokens, tokens->size()));
    }
    tokens->resize(static_cast<size_t>(options.prompt_tokens));
    return tokens;
  }
  VARVE_ASSIGN_OR_RETURN(std::string format, ChatFormatOf(options, model));
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", text});
  return EncodeChat(options, model, format, messages);
}

}  // namespace varve::cli
