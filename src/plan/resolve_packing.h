// What the clauses of packing mean (pack=, pack_codec=, …), defaults filled in. Pure functions.

#ifndef VARVE_PLAN_RESOLVE_PACKING_H_
#define VARVE_PLAN_RESOLVE_PACKING_H_

#include <optional>
#include <string>
#include <vector>

#include "plan/resolved_plan.h"

namespace varve {

// Nothing where the rule has no pack=. Blocks become whole pages.
std::optional<PackRule> PackRuleOf(const LayerRule& rule, int page_tokens);

// Of the rule's layers, which end with `last`, only sample_layers= keep their packing, spread
// evenly.
void SampleLayers(const LayerRule& rule, int last, std::vector<LayerForm>* layers);

// Says where pack_block= was rounded.
void AddPackNotes(const LayerRule& rule, const LayerForm& layer, int page_tokens,
                  std::vector<std::string>* notes);

PackSettings PackSettingsOf(const PlanSettings& said);

}  // namespace varve

#endif  // VARVE_PLAN_RESOLVE_PACKING_H_
