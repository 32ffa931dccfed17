#include "runtime/tokenizer/chat_formats.h"

namespace varve {
namespace {

// Messages that say their roles.
#define VARVE_CHAT_ROLES(message, assistant) \
  "{% for m in messages %}{{ " message       \
  " }}{% endfor %}{% if add_generation_prompt %}{{ " assistant " }}{% endif %}"

// Users inside [INST] … [/INST]; the assistant's text follows and ends with EOS.
#define VARVE_CHAT_INST(open, close, before_answer)                                       \
  "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}" \
  "{% set ns.system = m.content + '\\n\\n' %}{% elif m.role == 'assistant' %}"            \
  "{{ '" before_answer                                                                    \
  "' + m.content + eos_token }}{% else %}"                                                \
  "{{ '" open "' + ns.system + m.content + '" close                                       \
  "' }}{% set ns.system = '' %}{% endif %}"                                               \
  "{% endfor %}"

constexpr ChatFormat kFormats[] = {
    {"chatml", VARVE_CHAT_ROLES("'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n'",
                                "'<|im_start|>assistant\\n'")},
    {"llama3", VARVE_CHAT_ROLES(
                   "'<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim"
                   " + '<|eot_id|>'",
                   "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'")},
    {"llama2",
     "{% set ns = namespace(system='', turns=0) %}{% for m in messages %}"
     "{% if m.role == 'system' %}"
     "{% set ns.system = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}"
     "{% elif m.role == 'assistant' %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% else %}"
     "{{ (bos_token if ns.turns else '') + '[INST] ' + (ns.system + m.content) | trim"
     " + ' [/INST]' }}{% set ns.system = '' %}{% set ns.turns = ns.turns + 1 %}{% endif %}"
     "{% endfor %}"},
    {"mistral", VARVE_CHAT_INST("[INST] ", " [/INST]", " ")},
    {"mistral-v3", VARVE_CHAT_INST("[INST] ", "[/INST]", " ")},
    {"mistral-tekken", VARVE_CHAT_INST("[INST]", "[/INST]", "")},
    {"gemma",
     "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
     "{% set ns.system = m.content + '\\n\\n' %}{% else %}"
     "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + ns.system"
     " + m.content | trim + '<end_of_turn>\\n' }}{% set ns.system = '' %}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"zephyr", VARVE_CHAT_ROLES("'<|' + m.role + '|>\\n' + m.content + eos_token + '\\n'",
                                "'<|assistant|>\\n'")},
    {"phi3",
     VARVE_CHAT_ROLES("'<|' + m.role + '|>\\n' + m.content + '<|end|>\\n'", "'<|assistant|>\\n'")},
};

#undef VARVE_CHAT_ROLES
#undef VARVE_CHAT_INST

}  // namespace

std::span<const ChatFormat> ChatFormats() { return kFormats; }

}  // namespace varve
