#!/usr/bin/env python3
"""Golden texts of templates, for src/runtime/jinja/jinja_golden_test.cc.

What Jinja2 writes in the environment that transformers gives chat templates:

    tests/data/jinja/cases.json   [{name, template, variables, text}], or "error" instead of "text"

The templates were written for this file, in the manner of those that models bring.

    python3 tools/make_jinja_golden.py [--check]      needs jinja2

With --model NAME FILE (needs gguf) it writes the same for the template in a model's file, as FNV-1a hashes of the
texts: tests/data/jinja/NAME.json, for cli/models/chat_models_test.cc.
"""

import argparse
import json
import pathlib

from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

FILE = pathlib.Path(__file__).parent.parent / "tests/data/jinja/cases.json"

TURN = [{"role": "user", "content": " How old is the lake? "}]
TALK = TURN + [{"role": "assistant", "content": "Count the layers."}, {"role": "user", "content": "And then?\n"}]
SYSTEM = [{"role": "system", "content": "Be brief."}]
TOOLS = [{"type": "function", "function": {"name": "depth", "description": "Depth of a lake, in \"m\" <b>",
          "parameters": {"type": "object", "properties": {"lake": {"type": "string"}, "exact": {"type": "boolean"}},
                         "required": ["lake"]}}}]
CALLED = TURN + [
    {"role": "assistant", "content": None, "tool_calls": [
        {"type": "function", "id": "a1b2c3d4e", "function": {"name": "depth", "arguments": {"lake": "Zürich", "n": 1.5}}}]},
    {"role": "tool", "content": "136", "name": "depth", "tool_call_id": "a1b2c3d4e"},
    {"role": "assistant", "content": "136 m."}, {"role": "user", "content": "Thanks"}]

# Like Llama 3.1: the date, tools in the first user message, calls as JSON.
LLAMA3 = """{{- bos_token }}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if date_string is not defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{#- The system message, if there is one, is taken off. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today: " + (date_string|length)|string + "\\n\\n" }}{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is not string and message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if tools is not none %}{% for t in tools %}
    {{- t | tojson(indent=4) }}
    {{- "\\n\\n" }}
{%- endfor %}{% endif %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# Like Mistral: turns must alternate, which it counts with a namespace; ids of calls.
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("ids have 9 letters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""

GEMMA = """{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("roles must go user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""

# Like Qwen3: the last question is looked for from the end; thoughts are cut off by split.
THINKING = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- macro show(role, text='-', end="<|im_end|>") -%}
    <|im_start|>{{ role }}
{{ text }}{{ end }}
{% endmacro %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.last_query_index %}{{ show('assistant', '<think>\\n' ~ thought ~ '\\n</think>\\n\\n' ~ content) }}
        {%- else %}{{- show(message.role, content) }}{%- endif %}
    {%- else %}{{ show(message.role, text=content|default('', true)) }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}{%- endif %}"""

THOUGHTS = TURN + [{"role": "assistant", "content": "<think>\nHm.\n</think>\n\nOld."}, {"role": "user", "content": "Why?"}]

# Name, template, variables of its own.
SMALL = [
    ("blanks", "a\n  {% if true %}  \n b {%- if true %} c {% endif -%}\n d {%+ if true +%}\n e{% endif %}\n{% endif %}\nend\n\n", {}),
    ("comments", "a {# b #}\n c {#- d -#} e\n  {# f #}\ng", {}),
    ("raw", "{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%} {{ y }} {%- endraw -%} z", {}),
    ("strings", r"""{{ 'a\'b' + "c\"d" + '\n\t\\ \x41\u00e4\101 \q' 'joined' }}""", {}),
    ("precedence", "{{ 1 + 2 * 3 - 4 // 3 ** 2 % 5 }} {{ not 1 == 2 and 3 > 2 or false }} {{ 'a' ~ (1 + 2) }} {{ -2 ** 2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }}", {}),
    ("comparisons", "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 'x' in 'xyz' }} {{ 4 not in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1, 'a'] == [1, 'a'] }}", {}),
    ("values", "{{ none }} {{ true }} {{ 1.0 }} {{ 1e-05 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ [1, 'it\\'s', none, {'a': 2.5}] }} {{ missing }}|{{ 12345678901 }}", {}),
    ("slices", "{{ x[1:] }}{{ x[:-1] }}{{ x[::-1] }}{{ x[::2] }}{{ x[5:1:-2] }}{{ x[-100:2] }}{{ x[10:] }} {{ s[1:3] }}{{ s[-2:] }}{{ s[0] }}{{ s[-1] }}{{ s[::-1] }} {{ x[9] is defined }}", {"x": [1, 2, 3, 4, 5, 6], "s": "häßlich"}),
    ("loops", "{% for a in x %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('p', 'q') }} {% endfor %}", {"x": ["a", "b", "c"]}),
    ("loop control", "{% for i in range(10) if i is odd %}{% if i == 3 %}{% continue %}{% endif %}{% if i > 7 %}{% break %}{% endif %}{{ i }},{{ loop.index }} {% else %}none{% endfor %}{% for i in [] %}{% else %}none{% endfor %}", {}),
    ("unpacking", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}{% set a, b = 1, 2 %}{{ b }}{{ a }}{% for k in d %}{{ k }}{% endfor %}{% for p in d|items %}{{ p[0] }}{% endfor %}", {"d": {"z": 1, "a": 2}}),
    ("scopes", "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}{% set ns = namespace(n=0) %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{% with y = 5, z = x %}{{ y }}{{ z }}{% endwith %}{{ y }}", {}),
    ("set blocks", "{% set x %} a{{ 1 }} {% endset %}[{{ x }}]{% set y | trim | upper %} b {% endset %}[{{ y }}]{% filter upper %}c{{ x }}{% endfilter %}", {}),
    ("macros", "{% macro f(a, b='x', c=a) %}({{ a }}{{ b }}{{ c }}){% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}{{ f('<')|length }}{% macro g(n) %}{{ n }}{% if n > 0 %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}", {}),
    ("conditionals", "{{ 'a' if false }}|{{ 'a' if 0 else 'b' if '' else 'c' }}|{% if x is defined and x %}1{% elif y %}2{% else %}3{% endif %}|{{ x or y }}|{{ y and 1 }}", {"y": "why"}),
    ("texts", "{{ ' a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' a'.lstrip() }}|{{ 'a-b-c'.split('-') }}|{{ 'a-b-c'.split('-', 1) }}|{{ ' a  b '.split() }}|{{ 'abc'.upper() }}|{{ 'ABC'.lower() }}|{{ 'a b'.title() }}|{{ 'aBC'.capitalize() }}|{{ 'aXbX'.replace('X', 'yy') }}|{{ 'a\\nb\\n'.splitlines() }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'bc')) }}|{{ ', '.join(['a', 'b']) }}|{{ 'hähä'.find('ä') }}|{{ 'aXaX'.count('X') }}|{{ 'abc'.removeprefix('a') }}|{{ 'a.b.c'.rsplit('.', 1) }}|{{ '12'.isdigit() }}", {}),
    ("filters", "{{ ' a ' | trim }}|{{ 'aB' | upper }}|{{ 'aB' | lower }}|{{ 'a b' | title }}|{{ 'aB c' | capitalize }}|{{ [1, 2] | length }}|{{ 'hä' | length }}|{{ missing | length }}|{{ [3, 1, 2] | sort }}|{{ [3, 1] | first }}|{{ [3, 1] | last }}|{{ [1, 2] | join(', ') }}|{{ 'ab' | list }}|{{ '3' | int + 1 }}|{{ '2.5' | float }}|{{ 'x' | int(7) }}|{{ -3 | abs }}|{{ 2.567 | round(2) }}|{{ 2.5 | round }}|{{ 7.5 | round | int }}|{{ missing | default('d') }}|{{ '' | default('d') }}|{{ '' | d('d', true) }}|{{ 'aXb' | replace('X', '-') }}|{{ [1, 2, 3] | sum }}|{{ [1, 3] | max }}{{ [1, 3] | min }}|{{ [1, 1, 2] | unique | list }}|{{ 'abc' | reverse }}|{{ [1, 2] | reverse | list }}|{{ 5 | string + 'x' }}|{{ '<a>&' | e }}", {}),
    ("picking", "{{ m | map(attribute='r') | join(',') }}|{{ m | selectattr('r', 'equalto', 'u') | map(attribute='c') | list }}|{{ m | rejectattr('r', 'eq', 'u') | list | length }}|{{ m | selectattr('x') | list | length }}|{{ [1, 2, 3] | select('odd') | list }}|{{ [1, 2, 3] | reject('odd') | list }}|{{ ['a', 'b'] | map('upper') | join }}|{{ m | map(attribute='x', default='-') | join(',') }}|{{ m | sort(attribute='c') | map(attribute='c') | join }}", {"m": [{"r": "u", "c": "3"}, {"r": "a", "c": "1"}, {"r": "u", "c": "2", "x": 1}]}),
    ("tests", "{% for v in [none, true, 1, 1.5, 'a', [1], {'a': 1}] %}{{ v is none }}{{ v is boolean }}{{ v is integer }}{{ v is float }}{{ v is number }}{{ v is string }}{{ v is mapping }}{{ v is iterable }}{{ v is sequence }} {% endfor %}{{ x is defined }}{{ x is undefined }}{{ x is not defined }}{{ 4 is even }}{{ 4 is divisibleby 2 }}{{ 4 is divisibleby(3) }}{{ 1 is in [1] }}{{ 'a' is eq 'a' }}{{ not x is defined }}{{ true is true }}{{ 1 is true }}{{ 'A' is upper }}{{ 'a' is lower }}", {}),
    ("json", "{{ d | tojson }}|{{ d | tojson(indent=2) }}|{{ [] | tojson(indent=2) }}|{{ d | tojson(sort_keys=true, ensure_ascii=true) }}|{{ d | tojson(separators=(',', ':')) }}", {"d": {"b": [1, 2.5, None, True, "ä\n\"\\<\u0001😀"], "a": {}}}),
    ("dicts", "{{ d.a }}{{ d['b'] }}{{ d.get('c', 7) }}{{ d.get('c') }}{{ d.missing }}{{ d.keys() | list }}{{ d.values() | list }}{{ {'a': 1, 'a': 2} }}{{ dict(x=1) }}{{ d | length }}", {"d": {"a": 1, "b": 2}}),
    ("indent", "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}", {}),
    ("generation", "{% for m in [1] %}{% generation %}\nx{{ m }}\n{% endgeneration %}{% endfor %}", {}),
    ("braces", "{{ {'a': {'b': 1}}['a']['b'] }}{{ '}}' }}{{ \"%}\" }}{ { }} %}", {}),
    ("ranges", "{{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ range(3, 0, -1) | list }}{% for i in range(0) %}x{% endfor %}", {}),
    ("repetition", "{{ 'ab' * 3 }}{{ [1] * 2 }}{{ '-' * 0 }}{{ [1] + [2] }}", {}),
    ("error: undefined attribute", "{{ a.b.c }}", {}),
    ("error: text and number", "{{ 'a' + 1 }}", {}),
    ("error: refusal", "{{ raise_exception('no tools here') }}", {}),
    ("error: no end", "{% if x %}a", {}),
    ("error: filter", "{{ x | nonsense }}", {}),
    ("error: call", "{{ nonsense() }}", {}),
    ("error: zero", "{{ 1 // 0 }}", {}),
]


def chat(name, template, conversations):
    for index, (messages, tools) in enumerate(conversations):
        yield (f"{name} {index}", template,
               {"messages": messages, "tools": tools, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"})


PLAIN = [(TURN, None), (TALK, None), (SYSTEM + TALK, None)]
CASES = [
    *SMALL,
    *chat("llama3", LLAMA3, [*PLAIN, (SYSTEM + CALLED, TOOLS)]),
    *chat("mistral", MISTRAL, [*PLAIN, (SYSTEM + CALLED, TOOLS), (TURN + TURN, None)]),
    *chat("gemma", GEMMA, [*PLAIN, (TURN + TURN, None),
                           ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What? "}]}], None)]),
    *chat("thinking", THINKING, [*PLAIN, (THOUGHTS, None), (THOUGHTS[:2], None)]),
]


def environment():
    class GenerationTag(Extension):
        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise ValueError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: "01 Jan 2026"
    return env


def make_cases():
    env = environment()
    for name, template, variables in CASES:
        case = {"name": name, "template": template, "variables": variables}
        try:
            case["text"] = env.from_string(template).render(**variables)
        except Exception as error:  # what Jinja2 refuses, we must refuse
            case["error"] = type(error).__name__
        assert ("error" in case) == ("error" in name or name in ("mistral 4", "gemma 3")), (name, case)
        yield case


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def write_model(name, path):
    import gguf

    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    special = {f"{key}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"].contents()] for key in ("bos", "eos")}
    template = environment().from_string(fields["tokenizer.chat_template"].contents())
    cases = []
    for messages, tools in [*PLAIN, (CALLED, TOOLS), (SYSTEM + CALLED, TOOLS)]:
        if name == "smollm2" and tools:
            continue  # its template knows none
        text = template.render(messages=messages, tools=tools, add_generation_prompt=True, **special)
        cases.append({"messages": messages, "tools": tools, "bytes": len(text.encode()), "fnv1a": fnv1a(text)})
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FILE.parent / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--model", nargs=2, metavar=("NAME", "FILE"), help="of the template in a model's file")
    arguments = parser.parse_args()
    if arguments.model:
        write_model(*arguments.model)
        return
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in make_cases())
    text = f"[\n{lines}\n]\n"
    if arguments.check:
        assert FILE.read_text() == text, f"{FILE} is not what Jinja2 writes"
    else:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(text)


if __name__ == "__main__":
    main()
