// What golden files do not have: marks of what was said, limits, and what errors say.

#include "runtime/jinja/jinja_template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace varve::jinja {
namespace jinja_template_test {

Result<MarkedText> Render(std::string_view source, NamedValues variables = {}) {
  VARVE_ASSIGN_OR_RETURN(const Template parsed, Template::Parse(source));
  EvaluationLimits limits;  // less than the program's, so that tests of them are quick
  limits.steps = 1'000'000;
  return parsed.Run(std::move(variables), 0, limits);
}

std::string ErrorOf(std::string_view source) {
  const Result<MarkedText> text = Render(source);
  return text.ok() ? "no error" : text.status().message();
}

// The bytes that were said, in brackets.
std::string Marked(std::string_view source, const std::string& said) {
  const Result<MarkedText> text = Render(source, {{"x", Value::Text(MarkedText::Said(said))}});
  if (!text.ok()) return text.status().message();
  std::string shown;
  size_t at = 0;
  for (const TextRange& range : text->said()) {
    shown += text->text().substr(at, range.begin - at) + "[" +
             text->text().substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return shown + text->text().substr(at);
}

TEST(JinjaTemplate, EveryOperationCarriesTheMarks) {
  const std::pair<const char*, const char*> cases[] = {
      {"a{{ x }}b", "a[ some Text ]b"},
      {"{{ '<' + x + '>' }}", "<[ some Text ]>"},
      {"{{ '<' ~ x ~ 1 }}", "<[ some Text ]1"},
      {"{{ '<' + x | trim + '>' }}", "<[some Text]>"},
      {"{{ ('<' + x)[1:5] + ('<' + x)[:3] }}", "[ som]<[ s]"},
      {"{{ x.strip().split(' ')[0] ~ '.' }}", "[some]."},
      {"{{ x.replace('some', '<s>') }}", "[ ]<s>[ Text ]"},
      {"{{ '<s>'.replace('s', x) }}", "<[ some Text ]>"},
      {"{{ x | upper }}|{{ x.title() }}", "[ SOME TEXT ]|[ Some Text ]"},
      {"{{ ['<', x, '>'] | join('-') }}", "<-[ some Text ]->"},
      {"{{ {'k': x} | tojson }}", "[{\"k\": \" some Text \"}]"},
      {"{{ [x] }}", "[[' some Text ']]"},
      {"{% set y %}<{{ x }}>{% endset %}{{ y }}", "<[ some Text ]>"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}", "<[ some Text ]>"},
      {"{% filter upper %}<a>{{ x }}{% endfilter %}", "<A>[ SOME TEXT ]"},
      {"{% for c in x.strip()[:2] %}{{ c }}-{% endfor %}", "[s]-[o]-"},
      {"{{ x[::-1] | trim }}", "[txeT emos]"},
      {"{{ x * 2 }}", "[ some Text  some Text ]"},
      {"{{ x | indent(2, true) }}", "  [ some Text ]"},
      {"{% set ns = namespace(t='') %}{% set ns.t = ns.t + x %}<{{ ns.t }}>", "<[ some Text ]>"},
      {"{{ strftime_now(x) }}", "[ some Text ]"},
      {"{{ [1, 2] | tojson(separators=(x, ':')) }}", "[[1 some Text 2]]"},
      {"{{ x | length }}{{ x == 'a' }}", "11False"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(Marked(source, " some Text "), expected) << source;
  }
}

TEST(JinjaTemplate, ErrorsSayTheLineAndWhatIsNotSupported) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{{ x | xmlattr }}", "line 2: the filter \"xmlattr\" is not supported"},
      {"{{ 1 is bogus }}", "line 1: the test \"bogus\" is not supported"},
      {"\n\n{% extends 'a' %}", "line 3: the statement {% extends %} is not supported"},
      {"{{ 'a'.encode() }}", "line 1: the method \"encode\" is not supported"},
      {"{{ lipsum() }}", "line 1: the function \"lipsum\" is not supported"},
      {"{% for x in y recursive %}{% endfor %}", "line 1: a recursive loop is not supported"},
      {"{% for x in [1] %}", "line 1: expected {% endfor %}, found the end of the template"},
      {"{{ f(1 2) }}", "line 1: expected \",\", found \"2\""},
      {"{{ (1 }}", "line 1: \"}\" closes nothing"},
      {"a\n{{ 'b }}", "line 2: a string has no end"},
      {"a\n{% endif %}", "line 2: {% endif %} ends nothing that is open"},
      {"{% if 1 %}\n{{ a.b.c }}{% endif %}", "line 2: 'a' is undefined, so it has no \"b\""},
      {"{{ raise_exception('only\nusers') }}", "line 1: the template refuses: only\\nusers"},
      {"{% break %}", "line 1: {% break %} outside a loop"},
      {"{{ 'a' + 1 }}", "line 1: str + int: these types do not go together"},
      {"{{ [1] | tojson(indent=1000) }}", "line 1: tojson: indent 1000 > 64"},
      {"{{ 9999999999 * 9999999999 }}", "line 1: 9999999999 * 9999999999: more than 64 bits"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(ErrorOf(source), expected) << source;
  EXPECT_EQ(Render("{% import 'a' %}").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Render("{{ ").status().code(), StatusCode::kInvalidArgument);
}

// Whatever a stranger's template does, it ends soon, and without a deep stack.
TEST(JinjaTemplate, EverythingIsBounded) {
  const std::string deep(5000, '(');
  const std::pair<std::string, const char*> cases[] = {
      {"{% for a in range(100000) %}{% for b in range(100000) %}{{ '' }}{% endfor %}{% endfor %}",
       "steps"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels deep"},
      {"{% set ns = namespace(t='abcdefgh') %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}"
       "{% endfor %}",
       "more than"},
      {"{% set ns = namespace(t=[1]) %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}"
       "{% endfor %}",
       "more than"},
      {"{% set ns = namespace(t=1) %}{% for i in range(99) %}{% set ns.t = [ns.t] %}{% endfor %}",
       "levels"},
      {"{% set ns = namespace(t=1) %}{% for i in range(60) %}{% set ns.t = [ns.t, ns.t] %}"
       "{% endfor %}{{ ns.t }}",
       "parts"},
      {"{{ 'a' * 100000000000 }}", "parts"},
      {"{{ ('a' * 60000) | replace('a', 'b' * 60000) }}", "bytes"},
      {"{{ range(1000000000) }}", "range: more than"},
      {"{{ " + deep + "1" + std::string(5000, ')') + " }}", "levels of brackets"},
      {"{{ 1" + std::string(5000, '+') + "1 }}", "levels"},
      {"{{ x" + std::string(5000, '|') + " }}", "expected"},
  };
  for (const auto& [source, expected] : cases) {
    const std::string error = ErrorOf(source);
    EXPECT_NE(error.find(expected), std::string::npos) << source.substr(0, 60) << ": " << error;
  }
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  EXPECT_NE(ErrorOf(chain + " }}").find("levels"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  EXPECT_NE(ErrorOf(blocks).find("in one another"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(Template::kMaxSourceBytes + 1, 'a')).find("bytes"),
            std::string::npos);
}

TEST(JinjaTemplate, ANamespaceThatHoldsItselfIsReleased) {
  EXPECT_TRUE(Render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}"
                     "{% macro f() %}{% endmacro %}{% set ns.f = f %}")
                  .ok());
}

TEST(JinjaTemplate, WritesTheDateThatItIsGiven) {
  const Result<Template> parsed = Template::Parse("{{ strftime_now('%Y-%m') }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Run({}, 1767268800)->text(), "2026-01");
}

}  // namespace jinja_template_test
}  // namespace varve::jinja
