#include "runtime/whisper/speech_plans.h"

#include <string>

namespace varve {
namespace {

constexpr int kSelfPageTokens = 16;

// Rows that are to be f32 must not pass through f16 first.
void KeepExact(LayerRule* rule) {
  const bool exact = rule->k == "f32" || rule->v == "f32";
  if (exact && !rule->open_rung) rule->open_rung = "f32";
}

}  // namespace

Plan SelfPlan(const Plan& plan) {
  Plan self = plan;
  for (LayerRule& rule : self.rules) {
    rule.cross.reset();
    KeepExact(&rule);
  }
  if (!self.settings.page_tokens) self.settings.page_tokens = kSelfPageTokens;
  return self;
}

Plan CrossPlan(const Plan& plan) {
  Plan cross;
  cross.settings.page_tokens = plan.settings.page_tokens;
  for (const LayerRule& said : plan.rules) {
    LayerRule rule;
    rule.first_layer = said.first_layer;
    rule.last_layer = said.last_layer;
    const std::string last = said.age.empty() ? "f16" : said.age.back().rung;
    rule.k = said.cross ? *said.cross : said.k.value_or(last);
    rule.v = said.cross ? *said.cross : said.v.value_or(last);
    rule.open_tokens = 0;
    rule.exact_tokens = 0;
    rule.open_rung = said.open_rung;
    rule.codebook = said.codebook;
    rule.fallback = said.fallback;
    KeepExact(&rule);
    cross.rules.push_back(rule);
  }
  return cross;
}

}  // namespace varve
