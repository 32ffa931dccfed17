#include "runtime/tokenizer/chat_template.h"

#include <fmt/format.h>

#include <array>

namespace varve {

namespace {

constexpr std::array<std::string_view, 9> kNames = {"chatml",  "llama3",     "llama2",
                                                    "mistral", "mistral-v3", "mistral-tekken",
                                                    "gemma",   "zephyr",     "phi3"};

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// How a family writes one message: what stands before and after its text. The system message is
// either written the same way or, with `system_in_user`, put before the first user message.
struct Format {
  std::string_view name;
  std::string_view before_role;  // then the role
  std::string_view after_role;   // then the text
  std::string_view after_text;
  std::string_view assistant = "assistant";
  bool system_in_user = false;
  bool trims = false;
};

constexpr Format kRoleFormats[] = {
    {"chatml", "<|im_start|>", "\n", "<|im_end|>\n"},
    {"llama3", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "assistant", false,
     true},
    {"gemma", "<start_of_turn>", "\n", "<end_of_turn>\n", "model", true, true},
    {"zephyr", "<|", "|>\n", "</s>\n"},
    {"phi3", "<|", "|>\n", "<|end|>\n"},
};

class PromptWriter {
 public:
  template <typename... Parts>
  void Frame(const Parts&... parts) {
    (prompt_.text.append(parts), ...);
  }
  void Message(std::string_view text) {
    const size_t begin = prompt_.text.size();
    prompt_.text += text;
    prompt_.messages.push_back({begin, prompt_.text.size()});
  }
  bool empty() const { return prompt_.text.empty(); }
  ChatPrompt Finish() { return std::move(prompt_); }

 private:
  ChatPrompt prompt_;
};

ChatPrompt FormatRoles(const Format& format, std::span<const ChatMessage> messages) {
  PromptWriter prompt;
  std::string system;
  for (const ChatMessage& message : messages) {
    if (message.role == "system" && format.system_in_user) {
      system = message.content + "\n\n";
      continue;
    }
    const std::string_view role = message.role == "assistant" ? format.assistant : message.role;
    const std::string_view text = format.trims ? Trim(message.content) : message.content;
    prompt.Frame(format.before_role, role, format.after_role);
    prompt.Message(system.append(text));
    prompt.Frame(format.after_text);
    system.clear();
  }
  prompt.Frame(format.before_role, format.assistant, format.after_role);
  return prompt.Finish();
}

// Users speak inside [INST] … [/INST]; the assistant's text follows and ends with EOS.
struct InstFormat {
  std::string_view name;
  std::string_view open;
  std::string_view close;
  std::string_view before_answer;
  std::string_view after_answer;
  std::string_view before_later_turn = {};  // BOS once more
  std::string_view before_system = {};
  std::string_view after_system = "\n\n";
  bool trims = false;
};

constexpr InstFormat kInstFormats[] = {
    {"llama2", "[INST] ", " [/INST]", " ", " </s>", "<s>", "<<SYS>>\n", "\n<</SYS>>\n\n", true},
    {"mistral", "[INST] ", " [/INST]", " ", "</s>"},
    {"mistral-v3", "[INST] ", "[/INST]", " ", "</s>"},
    {"mistral-tekken", "[INST]", "[/INST]", "", "</s>"},
};

// What frames a system message ("<<SYS>>") is no special token in these families: it counts as
// said.
ChatPrompt FormatInst(const InstFormat& format, std::span<const ChatMessage> messages) {
  PromptWriter prompt;
  std::string system;
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      system = fmt::format("{}{}{}", format.before_system, message.content, format.after_system);
      continue;
    }
    const std::string full = system + message.content;
    const std::string_view text = format.trims ? Trim(full) : full;
    const bool is_user = message.role == "user";
    if (is_user && !prompt.empty()) prompt.Frame(format.before_later_turn);
    prompt.Frame(is_user ? format.open : format.before_answer);
    prompt.Message(text);
    prompt.Frame(is_user ? format.close : format.after_answer);
    system.clear();
  }
  return prompt.Finish();
}

Status CheckMessages(std::span<const ChatMessage> messages) {
  if (messages.empty()) return InvalidArgument("chat: 0 messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return InvalidArgument(
          fmt::format("chat: message {} has role \"{}\", not system, user or assistant", i, role));
    }
    if (role == "system" && i > 0) {
      return InvalidArgument(fmt::format("chat: message {} is of the system, only 0 can be", i));
    }
  }
  if (messages.back().role != "user") {
    return InvalidArgument(
        fmt::format("chat: the last message is of {}, not of the user", messages.back().role));
  }
  return Status();
}

std::string ListNames() {
  std::string list;
  for (const std::string_view name : kNames)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  return list;
}

// The family whose strings are in the template, empty if none. Those that look like one of ours and
// are not (Phi-4's <|im_sep|>, Mistral's [SYSTEM_PROMPT]) are told apart first.
std::string_view Recognise(std::string_view source) {
  const auto has = [source](std::string_view text) { return source.find(text) != source.npos; };
  if (has("<|im_sep|>") || has("[SYSTEM_PROMPT]")) return {};
  if (has("<|im_start|>")) return "chatml";
  if (has("<|start_header_id|>")) return "llama3";
  if (has("<start_of_turn>")) return "gemma";
  if (has("[INST]")) {
    if (has("<<SYS>>")) return "llama2";
    if (has(" [/INST]")) return "mistral";
    return has("[INST] ") ? "mistral-v3" : "mistral-tekken";
  }
  if (has("<|user|>") && has("<|end|>")) return "phi3";
  if (has("<|user|>") && has("eos_token")) return "zephyr";
  return {};
}

}  // namespace

std::span<const std::string_view> ChatFormatNames() { return kNames; }

Result<std::string_view> DetectChatFormat(const GgufFile& file) {
  VARVE_ASSIGN_OR_RETURN(std::string_view source, file.GetString("tokenizer.chat_template"));
  const std::string_view name = Recognise(source);
  if (!name.empty()) return name;
  return Unimplemented(fmt::format("tokenizer.chat_template: none of {}", ListNames()));
}

Result<ChatPrompt> FormatChat(std::string_view format, std::span<const ChatMessage> messages) {
  VARVE_RETURN_IF_ERROR(CheckMessages(messages));
  for (const Format& known : kRoleFormats) {
    if (known.name == format) return FormatRoles(known, messages);
  }
  for (const InstFormat& known : kInstFormats) {
    if (known.name == format) return FormatInst(known, messages);
  }
  return InvalidArgument(
      fmt::format("chat format \"{}\" is not built in; there are {}", format, ListNames()));
}

}  // namespace varve
