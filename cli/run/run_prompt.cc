#include "cli/run/run_prompt.h"

#include <unistd.h>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {
namespace {

// A vocabulary may have nothing for a text; generating needs a token to begin with.
Result<std::vector<int32_t>> RefuseNoTokens(const LoadedModel& model, std::vector<int32_t> tokens) {
  if (!tokens.empty()) return tokens;
  return InvalidArgument(
      fmt::format("prompt: the vocabulary of {} has no token for this text", model.name));
}

Result<std::vector<int32_t>> EncodePrompt(const RunOptions& options, const LoadedModel& model,
                                          const std::string& text) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const bool begins = options.load.empty();
  std::vector<int32_t> tokens =
      tokenizer.Encode(text, {.add_special = begins, .parse_special = options.special});
  if (!begins) return tokens;
  if (!text.empty()) return RefuseNoTokens(model, std::move(tokens));
  if (tokenizer.bos() < 0) {
    return InvalidArgument(fmt::format(
        "prompt: empty, and {} has no token that begins a text; give -p or -f", model.name));
  }
  return std::vector<int32_t>{tokenizer.bos()};
}

std::string FormatNames() {
  std::string names;
  for (const std::string_view name : ChatTemplate::BuiltInNames())
    names += fmt::format(" {}", name);
  return names;
}

// What a conversation needs; the error names the option that wants one.
Result<ChatTemplate> AskedTemplate(const RunOptions& options, const LoadedModel& model) {
  Result<ChatTemplate> found = FindChatTemplate(options.chat_format, model);
  if (found.ok() || !options.chat_format.empty()) return found;
  const char* option = options.chat ? "--chat" : options.turns.empty() ? "--system" : "--turns";
  return Status(found.status().code(), fmt::format("{}: {}; name a format with --chat:{}", option,
                                                   found.status().message(), FormatNames()));
}

// Why the prompt of a model that chats is no message; nullptr if it is one.
const char* WhyText(const RunOptions& options) {
  if (!options.load.empty()) return "what follows a loaded text";
  if (options.prompt_tokens > 0) return "a prompt of --prompt-tokens";
  if (!options.prompts.empty()) return "the text of each file";
  if (PromptIsFromStdin(options)) return "text from stdin";
  return options.file.empty() ? nullptr : "the text of a file";
}

}  // namespace

Result<ChatTemplate> FindChatTemplate(const std::string& format, const LoadedModel& model) {
  ChatTemplate::Tokens tokens = ChatTemplate::TokensOf(*model.tokenizer);
  if (format.empty()) return ChatTemplate::FromFile(*model.file, std::move(tokens));
  if (!format.starts_with('@')) return ChatTemplate::BuiltIn(format, std::move(tokens));
  VARVE_ASSIGN_OR_RETURN(const std::string source, ReadTextFile(format.substr(1)));
  Result<ChatTemplate> parsed = ChatTemplate::Parse(source, std::move(tokens));
  if (parsed.ok()) return parsed;
  return Status(parsed.status().code(),
                fmt::format("--chat {}: {}", format, parsed.status().message()));
}

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

Result<std::optional<ChatTemplate>> ChatTemplateOf(const RunOptions& options,
                                                   const LoadedModel& model) {
  const auto none = [] { return Result<std::optional<ChatTemplate>>(std::nullopt); };
  if (options.chat || !options.system.empty() || !options.turns.empty()) {
    VARVE_ASSIGN_OR_RETURN(ChatTemplate asked, AskedTemplate(options, model));
    return std::optional(std::move(asked));
  }
  if (options.raw) return none();
  Result<ChatTemplate> own =
      ChatTemplate::FromFile(*model.file, ChatTemplate::TokensOf(*model.tokenizer));
  if (!own.ok()) {
    if (own.status().code() != StatusCode::kNotFound) {
      WriteNote(fmt::format("varve: {}: {}; the prompt is continued as text\n", model.name,
                            own.status().message()));
    }
    return none();
  }
  const char* why_text = WhyText(options);
  if (why_text == nullptr) return std::optional(*std::move(own));
  WriteNote(fmt::format("varve: {} is continued; --chat makes it a message to {}\n", why_text,
                        model.name));
  return none();
}

Result<std::vector<int32_t>> EncodeChat(const RunOptions& options, const RunSetup& setup,
                                        std::span<const ChatMessage> messages, bool behind_answer) {
  const ChatRequest request{.messages = messages};
  VARVE_ASSIGN_OR_RETURN(ChatPrompt prompt, behind_answer ? setup.chat->RenderBehindAnswer(request)
                                                          : setup.chat->Render(request));
  const bool begins = options.load.empty() && !behind_answer && !setup.chat->HasBos(prompt);
  EncodeOptions encode{.add_special = begins, .parse_special = true};
  if (!options.special) encode.literal = prompt.messages;
  return RefuseNoTokens(setup.model, setup.model.tokenizer->Encode(prompt.text, encode));
}

Result<std::vector<int32_t>> PromptTokens(const RunOptions& options, const RunSetup& setup,
                                          const std::string& text, bool behind_answer) {
  if (!setup.is_chat()) {
    Result<std::vector<int32_t>> tokens = EncodePrompt(options, setup.model, text);
    if (!tokens.ok() || options.prompt_tokens == 0) return tokens;
    if (options.prompt_tokens > static_cast<int64_t>(tokens->size())) {
      return InvalidArgument(fmt::format("--prompt-tokens {}: the prompt has only {} tokens",
                                         options.prompt_tokens, tokens->size()));
    }
    tokens->resize(static_cast<size_t>(options.prompt_tokens));
    return tokens;
  }
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", text});
  return EncodeChat(options, setup, messages, behind_answer);
}

}  // namespace varve::cli
