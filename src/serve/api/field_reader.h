// FieldReader: typed fields of a JSON object from a stranger. The first thing that is wrong becomes
// the error, which names field, value and limit; what comes after it is not looked at. A field that
// is absent or null leaves the variable as it is. One thread.

#ifndef VARVE_SERVE_API_FIELD_READER_H_
#define VARVE_SERVE_API_FIELD_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/api_error.h"

namespace varve::serve {

// The object of a request's body. The error says where the text is no JSON.
ApiError ParseBody(std::string_view body, nlohmann::json* object);

class FieldReader {
 public:
  // `object` must outlive this.
  explicit FieldReader(const nlohmann::json& object) : object_(object) {}

  void Bool(const char* name, bool* value);
  void Int(const char* name, int64_t least, int64_t most, int64_t* value);
  void Float(const char* name, double least, double most, float* value);
  void Text(const char* name, std::string* value);
  // A text, or a list of at most `most` texts.
  void Texts(const char* name, size_t most, std::vector<std::string>* values);
  // {"15043": -100, …}: numbers by token id.
  void TokenNumbers(const char* name, double least, double most, std::map<int32_t, float>* values);

  // Null if it is absent or null.
  const nlohmann::json* Find(const char* name) const;
  void Fail(std::string message, std::string param);

  const ApiError& error() const { return error_; }

 private:
  // The field, if there is one and nothing has failed yet.
  const nlohmann::json* Next(const char* name) const;
  void WrongType(const char* name, const char* wanted);

  const nlohmann::json& object_;
  ApiError error_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_API_FIELD_READER_H_
