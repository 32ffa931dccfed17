// The JSON form of a plan: the clauses of the text form as keys, and the keys of the H2O system.
//
//   {"k": "q8_0", "v": "q4_0r", "open": 128}
//   {"rules": [{"layers": "0-1", "kv": "f16"}, {"layers": "2-", "evict": "h2o", "ratio": 3.5}]}
//   {"kv_h2o_enable": true, "kv_h2o_target_lossy_ratio": 3.5}

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/json_value.h"
#include "plan/plan_grammar.h"
#include "plan/plan_h2o_keys.h"
#include "plan/plan_rule.h"
#include "plan/plan_values.h"
#include "varve/plan.h"

namespace varve {
namespace {

using Json = JsonValue;

// A rule is an object in a list in an object. Deeper input is refused while it is parsed, so that
// nothing recursive ever sees it.
constexpr int kMaxDepth = 4;

// "" for a flat rule, "rule 2, " in a list.
std::string KeyLabel(const std::string& place, std::string_view key) {
  return fmt::format("{}key {}", place, QuoteForMessage(key));
}

Status KeyError(const std::string& label, std::string_view reason) {
  return InvalidArgument(fmt::format("plan: {}: {}", label, reason));
}

Result<Json> ParseObject(std::string_view text) {
  if (text.size() > kMaxPlanBytes) {
    return InvalidArgument(fmt::format("plan: JSON of {} bytes > {}", text.size(), kMaxPlanBytes));
  }
  Result<Json> root = Json::Parse(text, kMaxDepth);
  if (!root.ok()) return InvalidArgument(fmt::format("plan: {}", root.status().message()));
  if (!root->is_object()) return InvalidArgument("plan: JSON is not an object");
  return root;
}

// The value in the spelling that the clause takes in text, after a check of its type.
Result<std::string> ValueText(const ClauseSpec& clause, const Json& value,
                              const std::string& label) {
  bool is_right = value.is_string();
  std::string_view expected = "a string";
  switch (clause.kind) {
    case ClauseKind::kPage:
    case ClauseKind::kCount:
      is_right = value.is_number_integer();
      expected = "an integer";
      break;
    case ClauseKind::kReal:
      is_right = value.is_number();
      expected = "a number";
      break;
    case ClauseKind::kBytes:
      is_right = value.is_string() || value.is_number_integer();
      expected = "an integer or a string such as \"64MiB\"";
      break;
    default:
      break;
  }
  if (!is_right) {
    return KeyError(label,
                    fmt::format("value {} is not {}", QuoteForMessage(value.dump()), expected));
  }
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

Status StoreLayersKey(const Json& value, const std::string& label, LayerRule* rule) {
  if (!value.is_string() && !value.is_number_integer()) {
    return KeyError(label, fmt::format("value {} is not a string such as \"0-1\" or an integer",
                                       QuoteForMessage(value.dump())));
  }
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const Status stored = StoreLayers(Trim(text), rule);
  if (!stored.ok()) return KeyError(label, stored.message());
  return Status();
}

// Adds everything that the object says in clauses of ours.
Status AddOwnKeys(const Json& object, const std::string& place, RuleBuilder* builder) {
  for (const auto& [key, value] : object.items()) {
    if (IsH2oKey(key)) continue;
    const std::string label = KeyLabel(place, key);
    if (key == "layers") {
      VARVE_RETURN_IF_ERROR(StoreLayersKey(value, label, &builder->rule()));
      continue;
    }
    const ClauseSpec* clause = FindClause(key);
    if (clause == nullptr) {
      return KeyError(label, fmt::format("unknown key; known: rules layers {} kv_h2o_* "
                                         "kv_lossless_*",
                                         ClauseNames()));
    }
    VARVE_ASSIGN_OR_RETURN(std::string text, ValueText(*clause, value, label));
    VARVE_RETURN_IF_ERROR(builder->Add(*clause, text, label));
  }
  return Status();
}

bool HasH2oKeys(const Json& object) {
  for (const Json::Member& member : object.items()) {
    if (IsH2oKey(member.key)) return true;
  }
  return false;
}

// A flat object with H2O keys: our own clauses hold for all layers, theirs for the layers that
// they name.
Result<Plan> PlanFromH2oObject(const Json& object) {
  if (object.contains("layers")) {
    return KeyError(KeyLabel("", "layers"),
                    "conflicts with kv_h2o_* and kv_lossless_* keys, which choose layers "
                    "themselves (kv_h2o_layer_start)");
  }
  VARVE_ASSIGN_OR_RETURN(std::vector<KeySegment> segments, SegmentsFromH2oKeys(object));
  std::vector<LabeledRule> rules;
  for (const KeySegment& segment : segments) {
    RuleBuilder builder;
    VARVE_RETURN_IF_ERROR(AddOwnKeys(object, "", &builder));
    for (const KeyClause& key : segment.clauses) {
      VARVE_RETURN_IF_ERROR(builder.Add(*key.clause, key.value, key.label));
    }
    if (builder.empty()) continue;
    builder.rule().first_layer = segment.first_layer;
    builder.rule().last_layer = segment.last_layer;
    rules.push_back({builder.rule(), fmt::format("rule {}", rules.size() + 1)});
  }
  return JoinRules(std::move(rules));
}

Result<Plan> PlanFromList(const Json& list) {
  if (!list.is_array()) {
    return KeyError(KeyLabel("", "rules"),
                    fmt::format("value {} is not a list", QuoteForMessage(list.dump())));
  }
  std::vector<LabeledRule> rules;
  for (const Json& object : list) {
    const std::string label = fmt::format("rule {}", rules.size() + 1);
    if (!object.is_object()) return KeyError(label, "is not an object");
    if (HasH2oKeys(object)) {
      return KeyError(label,
                      "kv_h2o_* and kv_lossless_* keys stand in a flat object, not in a "
                      "list of rules");
    }
    RuleBuilder builder;
    VARVE_RETURN_IF_ERROR(AddOwnKeys(object, label + ", ", &builder));
    if (builder.empty()) return KeyError(label, "says nothing");
    rules.push_back({builder.rule(), label});
  }
  return JoinRules(std::move(rules));
}

void WriteRule(const WrittenRule& rule, JsonWriter& writer) {
  writer.Open('{');
  if (rule.first_layer != 0 || rule.last_layer != -1) writer.Key("layers").Text(LayersText(rule));
  for (const ClauseSpec& clause : Clauses()) {
    const std::optional<std::string> value = ClauseValue(clause, rule);
    if (!value) continue;
    writer.Key(clause.name);
    if (clause.kind == ClauseKind::kPage) {
      writer.Integer(*rule.page_tokens);
    } else if (clause.kind == ClauseKind::kCount) {
      writer.Integer(*(rule.*clause.count));
    } else if (clause.kind == ClauseKind::kReal) {
      writer.Real(*(rule.*clause.real));
    } else {
      writer.Text(*value);
    }
  }
  writer.Close('}');
}

}  // namespace

Result<Plan> ParsePlanJson(std::string_view json) {
  VARVE_ASSIGN_OR_RETURN(Json root, ParseObject(json));
  if (const Json* list = root.find("rules")) {
    if (root.size() > 1) {
      return KeyError(KeyLabel("", "rules"), "must be the only key beside its rules' own");
    }
    return PlanFromList(*list);
  }
  if (HasH2oKeys(root)) return PlanFromH2oObject(root);
  RuleBuilder builder;
  VARVE_RETURN_IF_ERROR(AddOwnKeys(root, "", &builder));
  if (builder.empty() && root.contains("layers")) {
    return KeyError(KeyLabel("", "layers"), "the rule says nothing else");
  }
  if (builder.empty()) return Plan();
  return JoinRules({{builder.rule(), "rule 1"}});
}

std::string PrintPlanJson(const Plan& plan) {
  const std::vector<WrittenRule> rules = SplitPlan(plan);
  JsonWriter writer;
  if (rules.size() == 1) {
    WriteRule(rules[0], writer);
  } else {
    writer.Open('{').Key("rules").Open('[');
    for (const WrittenRule& rule : rules) WriteRule(rule, writer);
    writer.Close(']').Close('}');
  }
  return writer.Take();
}

}  // namespace varve
