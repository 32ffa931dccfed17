// ChatTemplate: makes one prompt of the messages of a conversation, as the model was trained on it.
//
// The template is the model's own (Jinja, in the file's tokenizer.chat_template) and is run, so
// that default system messages, tools and their answers come out as its makers wrote them. For
// files without one there are built-in templates of the common families, by name. Immutable: any
// number of threads may use one.

#ifndef VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_
#define VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_

#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/jinja/jinja_template.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve {

// What an assistant asked for.
struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // JSON; other text is passed on as a text
};

struct ChatMessage {
  std::string role;  // system, developer, user, assistant, tool, function, ipython
  std::string content;
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {};  // of a tool's answer
  std::string name = {};          // likewise: the tool's
};

struct ChatRequest {
  std::span<const ChatMessage> messages;
  std::string_view tools = {};        // JSON: a list of function descriptions; empty: none
  bool add_generation_prompt = true;  // ends where the assistant begins
  std::string_view variables = {};    // JSON: an object of further ones ("enable_thinking")
  std::time_t now = 0;                // for templates that write the date; 0: the clock's
  jinja::EvaluationLimits limits = {};
};

// Special tokens are in it as text: encode with parse_special, and with what was said as literal
// ranges, so that nobody's words end a turn.
struct ChatPrompt {
  std::string text;
  std::vector<TextRange> messages;  // what was said, tools and their calls too; ascending
};

class ChatTemplate {
 public:
  // The special tokens that templates name: bos_token, eos_token. They may be empty.
  struct Tokens {
    std::string bos;
    std::string eos;
  };
  static Tokens TokensOf(const Tokenizer& tokenizer);

  // Errors begin with the line of the template: kInvalidArgument where it is wrong, kUnimplemented
  // where it needs what the interpreter has not.
  static Result<ChatTemplate> Parse(std::string_view source, Tokens tokens);
  // The file's tokenizer.chat_template; kNotFound if it has none.
  static Result<ChatTemplate> FromFile(const GgufFile& file, Tokens tokens);
  // "chatml", "llama3" …; an unknown name is kInvalidArgument and says which there are.
  static Result<ChatTemplate> BuiltIn(std::string_view name, Tokens tokens);
  static std::vector<std::string_view> BuiltInNames();

  // kInvalidArgument: no messages, an unknown role, tools that are no JSON, or what the template
  // itself refuses, with its words.
  Result<ChatPrompt> Render(const ChatRequest& request) const;

  // What comes behind an answer whose text was the last thing that the model read or wrote: its
  // end, then `request`'s messages. For conversations whose beginning is tokens alone.
  Result<ChatPrompt> RenderBehindAnswer(const ChatRequest& request) const;

  // True if a text begins as conversations of this template do.
  bool IsBeginningOf(std::string_view text) const;

  // Begins with the bos token, which nobody said: it need not be added.
  bool HasBos(const ChatPrompt& prompt) const {
    const size_t said = prompt.messages.empty() ? prompt.text.size() : prompt.messages[0].begin;
    return !tokens_.bos.empty() && prompt.text.starts_with(tokens_.bos) &&
           said >= tokens_.bos.size();
  }

 private:
  ChatTemplate(jinja::Template parsed, Tokens tokens)
      : template_(std::move(parsed)), tokens_(std::move(tokens)) {}

  jinja::Template template_;
  Tokens tokens_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_CHAT_TEMPLATE_H_
