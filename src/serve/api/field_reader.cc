#include "serve/api/field_reader.h"

#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace varve::serve {
namespace {

using nlohmann::json;

// A value in a message: short, and never half a character.
std::string Shown(const json& value) {
  constexpr size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() <= kMost) return text;
  return text.substr(0, kMost) + "…";
}

}  // namespace

ApiError ParseBody(std::string_view body, json* object) {
  try {
    *object = json::parse(body);
  } catch (const json::exception& error) {
    return InvalidRequest(fmt::format("body: no JSON: {}", error.what()));
  }
  if (object->is_object()) return {};
  return InvalidRequest(fmt::format("body: {} is no JSON object", Shown(*object)));
}

const json* FieldReader::Find(const char* name) const {
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

const json* FieldReader::Next(const char* name) const { return error_.ok() ? Find(name) : nullptr; }

void FieldReader::Fail(std::string message, std::string param) {
  if (error_.ok()) error_ = InvalidRequest(std::move(message), std::move(param));
}

void FieldReader::WrongType(const char* name, const char* wanted) {
  Fail(fmt::format("{}: {} is not {}", name, Shown(*Find(name)), wanted), name);
}

void FieldReader::Bool(const char* name, bool* value) {
  const json* field = Next(name);
  if (field == nullptr) return;
  if (!field->is_boolean()) return WrongType(name, "true or false");
  *value = field->get<bool>();
}

void FieldReader::Int(const char* name, int64_t least, int64_t most, int64_t* value) {
  const json* field = Next(name);
  if (field == nullptr) return;
  // Some clients write 100.0.
  const bool is_whole = field->is_number_float() && std::trunc(field->get<double>()) == *field &&
                        std::abs(field->get<double>()) < 1e15;
  if (!field->is_number_integer() && !is_whole) return WrongType(name, "a whole number");
  const bool is_huge = field->is_number_unsigned() && field->get<uint64_t>() > INT64_MAX;
  const int64_t number = is_huge ? INT64_MAX : field->get<int64_t>();
  if (number < least || number > most || is_huge) {
    return Fail(fmt::format("{}: {} is not in {} … {}", name, Shown(*field), least, most), name);
  }
  *value = number;
}

void FieldReader::Float(const char* name, double least, double most, float* value) {
  const json* field = Next(name);
  if (field == nullptr) return;
  if (!field->is_number()) return WrongType(name, "a number");
  const double number = field->get<double>();
  if (!(number >= least && number <= most)) {
    return Fail(fmt::format("{}: {} is not in {} … {}", name, Shown(*field), least, most), name);
  }
  *value = static_cast<float>(number);
}

void FieldReader::Text(const char* name, std::string* value) {
  const json* field = Next(name);
  if (field == nullptr) return;
  if (!field->is_string()) return WrongType(name, "a text");
  *value = field->get<std::string>();
}

void FieldReader::Texts(const char* name, size_t most, std::vector<std::string>* values) {
  const json* field = Next(name);
  if (field == nullptr) return;
  if (field->is_string()) {
    *values = {field->get<std::string>()};
    return;
  }
  if (!field->is_array()) return WrongType(name, "a text or a list of texts");
  if (field->size() > most) {
    return Fail(fmt::format("{}: {} texts, the limit is {}", name, field->size(), most), name);
  }
  values->clear();
  for (const json& text : *field) {
    if (!text.is_string()) return WrongType(name, "a text or a list of texts");
    values->push_back(text.get<std::string>());
  }
}

void FieldReader::TokenNumbers(const char* name, double least, double most,
                               std::map<int32_t, float>* values) {
  const json* field = Next(name);
  if (field == nullptr) return;
  if (!field->is_object()) return WrongType(name, "an object of numbers by token id");
  for (const auto& [key, number] : field->items()) {
    int32_t id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0) {
      return Fail(fmt::format("{}: \"{}\" is no token id", name, key.substr(0, 20)), name);
    }
    const double bias = number.is_number() ? number.get<double>() : NAN;
    if (!(bias >= least && bias <= most)) {
      return Fail(
          fmt::format("{}: {} of token {} is not in {} … {}", name, Shown(number), id, least, most),
          name);
    }
    (*values)[id] = static_cast<float>(bias);
  }
}

}  // namespace varve::serve
