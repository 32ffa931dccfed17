// Templates against Jinja2; the file comes from tools/make_jinja_golden.py.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/jinja/jinja_template.h"
#include "tests/test_data.h"

namespace varve::jinja {
namespace jinja_golden_test {

NamedValues VariablesOf(const nlohmann::ordered_json& json) {
  NamedValues variables;
  for (const auto& [key, value] : json.items()) {
    const Result<JsonValue> parsed = JsonValue::Parse(value.dump(), 32);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    variables.emplace_back(key, Value::FromJson(*parsed));
  }
  return variables;
}

TEST(JinjaGolden, WritesWhatJinja2Writes) {
  const auto cases = nlohmann::ordered_json::parse(std::ifstream(TestDataPath("jinja/cases.json")));
  ASSERT_GE(cases.size(), 50u);
  for (const auto& golden : cases) {
    const auto name = golden["name"].get<std::string>();
    const auto parsed = Template::Parse(golden["template"].get<std::string>());
    if (!parsed.ok()) {
      EXPECT_TRUE(golden.contains("error")) << name << ": " << parsed.status().message();
      EXPECT_EQ(parsed.status().message().find("line "), 0u) << parsed.status().message();
      continue;
    }
    // 1 January 2026, wherever the machine is.
    const auto text = parsed->Run(VariablesOf(golden["variables"]), 1767268800);
    if (golden.contains("error")) {
      ASSERT_FALSE(text.ok()) << name;
      EXPECT_EQ(text.status().message().find("line "), 0u) << text.status().message();
      continue;
    }
    ASSERT_TRUE(text.ok()) << name << ": " << text.status().message();
    EXPECT_EQ(text->text(), golden["text"].get<std::string>()) << name;
  }
}

}  // namespace jinja_golden_test
}  // namespace varve::jinja
