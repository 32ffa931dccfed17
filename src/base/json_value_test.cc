#include "base/json_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace varve {
namespace json_value_test {

std::string RoundTrip(std::string_view text) {
  const Result<JsonValue> value = JsonValue::Parse(text, 4);
  return value.ok() ? value->dump() : value.status().message();
}

TEST(JsonValue, ComesBackAsItWasWritten) {
  EXPECT_EQ(RoundTrip(R"({"b": [1, -2, 2.5, "x\"\\\n"], "a": {"t": true, "n": null}})"),
            R"({"b":[1,-2,2.5,"x\"\\\n"],"a":{"t":true,"n":null}})");
  EXPECT_EQ(RoundTrip("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(RoundTrip("-7"), "-7");
  EXPECT_EQ(RoundTrip("\"\xC3\xA4\""), "\"\xC3\xA4\"");
}

TEST(JsonValue, RefusesWhatIsNoneOrTooMuch) {
  for (const char* bad : {"", "{", "[1,]", "{} {}", "1e999", "\"\xFF\"", "nul"}) {
    EXPECT_EQ(RoundTrip(bad), "not valid JSON") << bad;
  }
  EXPECT_EQ(RoundTrip("[[[[1]]]]"), "[[[[1]]]]");
  EXPECT_EQ(RoundTrip("[[[[[1]]]]]"), "JSON nested deeper than 4 levels");
  EXPECT_EQ(RoundTrip(std::string(1 << 20, '[')), "JSON nested deeper than 4 levels");
  EXPECT_EQ(RoundTrip(R"({"a": 1, "b": 2, "a": 3})"), "key \"a\": repeated in one object");
}

TEST(JsonValue, MembersAreFoundByName) {
  const Result<JsonValue> value = JsonValue::Parse(R"({"on": true, "n": 3, "s": "x"})", 4);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 3u);
  EXPECT_TRUE(value->find("on")->get<bool>());
  EXPECT_EQ(value->find("off"), nullptr);
  EXPECT_EQ(value->value("n", 1.5), 3.0);
  EXPECT_EQ(value->value("m", 1.5), 1.5);
  EXPECT_EQ(value->value("s", "y"), "x");
  EXPECT_TRUE(value->find("n")->is_number_integer());
  EXPECT_FALSE(value->find("s")->is_number());
}

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  JsonWriter writer;
  writer.Open('{').Key("a").Integer(1).Key("b").Open('[').Real(1).Real(0.1).Real(NAN).Close(']');
  writer.Key("c").Open('{').Close('}').Key("d").Text("\x01\xFF").Close('}');
  EXPECT_EQ(writer.Take(), "{\"a\":1,\"b\":[1.0,0.1,null],\"c\":{},\"d\":\"\\u0001\xEF\xBF\xBD\"}");
}

}  // namespace json_value_test
}  // namespace varve
