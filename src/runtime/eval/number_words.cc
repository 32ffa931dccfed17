#include "runtime/eval/number_words.h"

#include <array>
#include <cstddef>
#include <map>
#include <utility>

namespace varve {
namespace {

using enum NumberWordKind;
using WordTable = std::map<std::string, NumberWord, std::less<>>;

constexpr std::array<std::string_view, 19> kOnes = {
    "one",     "two",     "three",     "four",     "five",    "six",      "seven",
    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array<std::string_view, 8> kTens = {"twent", "thirt",  "fort",  "fift",
                                                   "sixt",  "sevent", "eight", "ninet"};
constexpr std::array<std::string_view, 11> kThousands = {
    "thousand",   "million",    "billion",   "trillion",  "quadrillion", "quintillion",
    "sextillion", "septillion", "octillion", "nonillion", "decillion"};

// The list of the reference has the regular "nineth", so "ninth" stays a word.
std::string Ordinal(size_t value, const std::string& name) {
  static const std::map<size_t, std::string> irregular = {
      {1, "first"}, {2, "second"}, {3, "third"}, {5, "fifth"}, {12, "twelfth"}};
  const auto found = irregular.find(value);
  if (found != irregular.end()) return found->second;
  return name + (name.back() == 't' ? "h" : "th");
}

std::string OrdinalSuffix(size_t value) {
  constexpr std::array<const char*, 4> kSuffixes = {"th", "st", "nd", "rd"};
  return kSuffixes[value < kSuffixes.size() ? value : 0];
}

void AddNumbers(WordTable& table) {
  for (const char* zero : {"o", "oh", "zero"}) table[zero] = {kZero, "0", ""};
  table["zeroth"] = {kOneSuffixed, "0", "th"};
  for (size_t i = 0; i < kOnes.size(); ++i) {
    const size_t value = i + 1;
    const std::string name(kOnes[i]);
    table[name] = {kOne, std::to_string(value), ""};
    table[name + (value == 6 ? "es" : "s")] = {kOneSuffixed, std::to_string(value), "s"};
    table[Ordinal(value, name)] = {kOneSuffixed, std::to_string(value), OrdinalSuffix(value)};
  }
  for (size_t i = 0; i < kTens.size(); ++i) {
    const std::string digits = std::to_string(10 * (i + 2));
    const std::string stem(kTens[i]);
    table[stem + "y"] = {kTen, digits, ""};
    table[stem + "ies"] = {kTenSuffixed, digits, "s"};
    table[stem + "ieth"] = {kTenSuffixed, digits, "th"};
  }
}

void AddMultiplier(WordTable& table, const std::string& name, size_t zeros) {
  const std::string digits = "1" + std::string(zeros, '0');
  table[name] = {kMultiplier, digits, ""};
  table[name + "s"] = {kMultiplierSuffixed, digits, "s"};
  table[name + "th"] = {kMultiplierSuffixed, digits, "th"};
}

WordTable MakeTable() {
  WordTable table;
  AddNumbers(table);
  AddMultiplier(table, "hundred", 2);
  for (size_t i = 0; i < kThousands.size(); ++i) {
    AddMultiplier(table, std::string(kThousands[i]), 3 * (i + 1));
  }
  for (const char* word : {"minus", "negative"}) table[word] = {kSign, "", "-"};
  for (const char* word : {"plus", "positive"}) table[word] = {kSign, "", "+"};
  for (const auto& [word, symbol] : {std::pair("pound", "£"), std::pair("euro", "€"),
                                     std::pair("dollar", "$"), std::pair("cent", "¢")}) {
    table[word] = {kCurrency, "", symbol};
    table[std::string(word) + "s"] = {kCurrency, "", symbol};
  }
  for (const char* word : {"per", "percent"}) table[word] = {kPercent, "", "%"};
  for (const char* word : {"and", "double", "triple", "point"}) table[word] = {kSpecial, "", ""};
  return table;
}

}  // namespace

const NumberWord* FindNumberWord(std::string_view word) {
  static const WordTable table = MakeTable();
  const auto found = table.find(word);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace varve
