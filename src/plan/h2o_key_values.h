// The keys of the H2O system by name and type, and how their values are read; private to the files
// that turn keys into clauses.

#ifndef VARVE_PLAN_H2O_KEY_VALUES_H_
#define VARVE_PLAN_H2O_KEY_VALUES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/json_value.h"
#include "plan/plan_h2o_keys.h"
#include "varve/status.h"

namespace varve {

// Every key of the object that is the system's: known, and of the right type.
Status CheckH2oKeys(const JsonValue& object);

// `key "kv_h2o_sink_tokens"`, and an error about it.
std::string H2oKeyLabel(std::string_view key);
Status H2oKeyError(std::string_view key, std::string_view reason);

// False where the key is absent.
bool H2oFlag(const JsonValue& object, const char* key);

// Adds clause=value if the object has the key; JSON's spelling of a number is the clause's.
void AddIfSaid(const JsonValue& object, const char* key, std::string_view clause,
               std::vector<KeyClause>* clauses);

}  // namespace varve

#endif  // VARVE_PLAN_H2O_KEY_VALUES_H_
