// One plan of the user, two caches: what the decoder's own rows (self) and the encoder's (cross)
// are kept in. Pure functions.

#ifndef VARVE_RUNTIME_WHISPER_SPEECH_PLANS_H_
#define VARVE_RUNTIME_WHISPER_SPEECH_PLANS_H_

#include "varve/plan.h"

namespace varve {

// The plan without its cross= clauses. Pages have 16 tokens unless the plan says otherwise: beams
// copy the page that they part in, and a text of a few words must not take the room of many.
Plan SelfPlan(const Plan& plan);

// The rung of cross=, or else that of k= and v= (of age=: the last), for every page and from the
// first token on. What belongs to growing text, such as windows and policies, says nothing here.
Plan CrossPlan(const Plan& plan);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_SPEECH_PLANS_H_
