#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "varve/plan.h"

namespace varve {
namespace plan_json_test {

// The text form of what the JSON says, or the error.
std::string Text(std::string_view json) {
  Result<Plan> plan = ParsePlanJson(json);
  return plan.ok() ? PrintPlan(*plan) : plan.status().message();
}

TEST(PlanJson, KeysAreTheNamesOfTheClauses) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", ""},
      {R"({"rules": []})", ""},
      {R"({"kv": "q8_0"})", "q8_0"},
      {R"({"v": "q4_0r", "k": "q8_0"})", "k=q8_0,v=q4_0r"},
      {R"({"age": "f16:512/q8_0:4096/q4_0"})", "age=f16:512/q8_0:4096/q4_0"},
      {R"({"open": 128, "open_rung": "f32"})", "open=128,open_rung=f32"},
      {R"({"page": 32})", "page=32"},
      {R"({"window": 4096, "sink": 4})", "window=4096,sink=4"},
      {R"({"evict": "h2o", "ratio": 3.5, "recent": 256, "trigger": 512, "every": 16, "ema": 0.9})",
       "evict=h2o,ratio=3.5,recent=256,trigger=512,every=16,ema=0.9"},
      {R"({"ratio": 3})", "ratio=3"},
      {R"({"budget": "64MiB"})", "budget=64MiB"},
      {R"({"budget": 1024})", "budget=1KiB"},
      {R"({"pack": "store", "hot": "16/256", "bootstrap": 32, "step": 256})",
       "pack=store,hot=16/256,bootstrap=32,step=256"},
      {R"({"codebook": "a, \"b\".bin", "fold": "c.bin", "image": 576})",
       R"(codebook="a, \"b\".bin",fold=c.bin,image=576)"},
      {R"({"cross": "q8_0", "fallback": "q4_0"})", "cross=q8_0,fallback=q4_0"},
      {R"({"layers": "2-", "kv": "f16"})", "2-: f16"},
      {R"({"layers": 3, "kv": "f16"})", "3: f16"},
      {R"({"rules": [{"layers": "2-", "kv": "q4_0r"}, {"layers": "0-1", "kv": "f16"}]})",
       "0-1: f16; 2-: q4_0r"},
  };
  for (const auto& [json, text] : cases) EXPECT_EQ(Text(json), text) << json;
}

TEST(PlanJson, PrintsOneRuleFlatAndSeveralInAList) {
  EXPECT_EQ(PrintPlanJson(*ParsePlan("q8_0,open=128")), R"({"kv":"q8_0","open":128})");
  EXPECT_EQ(PrintPlanJson(*ParsePlan("3: f16")), R"({"layers":"3","kv":"f16"})");
  EXPECT_EQ(PrintPlanJson(*ParsePlan("0-1: f16; 2-: ratio=3.5")),
            R"({"rules":[{"layers":"0-1","kv":"f16"},{"layers":"2-","ratio":3.5}]})");
  EXPECT_EQ(PrintPlanJson(Plan()), R"({"rules":[]})");
}

TEST(PlanJson, PrintingAFileNameThatIsNotUtf8DoesNotThrow) {
  Plan plan;
  plan.rules.resize(1);
  plan.rules[0].fold = "\xff";
  EXPECT_FALSE(PrintPlanJson(plan).empty());
}

TEST(PlanJsonError, NamesKeyAndReason) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"speed": 1})", R"(plan: key "speed": unknown key; known: rules layers kv k v)"},
      {R"({"open": "12"})", R"(plan: key "open": value ""12"" is not an integer)"},
      {R"({"open": 1.5})", R"(plan: key "open": value "1.5" is not an integer)"},
      {R"({"open": -1})", R"(plan: key "open": open -1 < 0)"},
      {R"({"open": 1e30})", R"(plan: key "open": value "1e+30" is not an integer)"},
      {R"({"open": 18446744073709551615})", R"(plan: key "open": open "18446744073709551615" > )"},
      {R"({"kv": 8})", R"(plan: key "kv": value "8" is not a string)"},
      {R"({"kv": null})", R"(plan: key "kv": value "null" is not a string)"},
      {R"({"kv": "q9"})", R"(plan: key "kv": unknown rung "q9"; known: )"},
      {R"({"ratio": "3"})", R"(plan: key "ratio": value ""3"" is not a number)"},
      {R"({"ratio": true})", R"(plan: key "ratio": value "true" is not a number)"},
      {R"({"budget": 1.5})", R"(is not an integer or a string such as "64MiB")"},
      {R"({"layers": true, "kv": "f16"})", R"(plan: key "layers": value "true" is not a string)"},
      {R"({"layers": "1-0", "kv": "f16"})", R"(plan: key "layers": last layer 0 < first layer 1)"},
      {R"({"layers": "1-2"})", R"(plan: key "layers": the rule says nothing else)"},
      {R"({"k": "f16", "k": "q8_0"})", R"(plan: key "k": repeated in one object)"},
      {R"({"k": "f16", "kv": "q8_0"})", R"(plan: key "kv": conflicts with key "k")"},
      {R"({"ratio": 2, "budget": 5})", R"(plan: key "budget": conflicts with key "ratio")"},
      {R"({"rules": 5})", R"(plan: key "rules": value "5" is not a list)"},
      {R"({"rules": [5]})", R"(plan: rule 1: is not an object)"},
      {R"({"rules": [{}]})", R"(plan: rule 1: says nothing)"},
      {R"({"rules": [{"kv": "f16"}], "open": 1})", R"(plan: key "rules": must be the only key)"},
      {R"({"rules": [{"layers": "0", "kv": "f16"}, {"layers": "1-", "open": []}]})",
       R"(plan: rule 2, key "open": value "[]" is not an integer)"},
      {R"({"rules": [{"kv": "f16"}, {"layers": "1", "kv": "f16"}]})",
       "plan: rule 2: layers 1 overlap layers 0- of rule 1"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_NE(Text(json).find(message), std::string::npos) << json << " gave " << Text(json);
  }
}

TEST(PlanJsonError, HostileInputIsRefused) {
  EXPECT_EQ(Text(""), "plan: not valid JSON");
  EXPECT_EQ(Text("{"), "plan: not valid JSON");
  EXPECT_EQ(Text("{\"open\": 1e999}"), "plan: not valid JSON");
  EXPECT_EQ(Text("{\"fold\": \"\xff\"}"), "plan: not valid JSON");
  EXPECT_EQ(Text("{} {}"), "plan: not valid JSON");
  EXPECT_EQ(Text("[]"), "plan: JSON is not an object");
  EXPECT_EQ(Text("\"q8_0\""), "plan: JSON is not an object");
  EXPECT_EQ(Text(std::string(65537, ' ')), "plan: JSON of 65537 bytes > 65536");
  EXPECT_NE(Text(R"({"fold": "a\u0000b"})").find("is not UTF-8 text"), std::string::npos);
}

TEST(PlanJsonError, DeepNestingIsRefusedBeforeItIsBuilt) {
  const std::string lists(65536, '[');
  EXPECT_EQ(Text(lists), "plan: JSON nested deeper than 4 levels");
  std::string closed = std::string(30000, '[') + std::string(30000, ']');
  EXPECT_EQ(Text(closed), "plan: JSON nested deeper than 4 levels");
  std::string objects;
  while (objects.size() < 60000) objects += "{\"k\":";
  EXPECT_EQ(Text(objects), "plan: JSON nested deeper than 4 levels");
  EXPECT_EQ(Text("{\"rules\": [{\"open\": [1]}]}"),
            "plan: rule 1, key \"open\": value \"[1]\" is not an integer");
}

}  // namespace plan_json_test
}  // namespace varve
