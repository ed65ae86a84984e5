// The invariants of the definitions, checked after a step (check = True, or always in a build with EXPERTMISS_ASSERT).
#pragma once

#include "step.hpp"

namespace expertmiss {

#ifdef EXPERTMISS_ASSERT
inline constexpr bool kAlwaysCheck = true;
#else
inline constexpr bool kAlwaysCheck = false;
#endif

/// Throws std::logic_error that names the invariant, document, layer and token.
void check_step(const StepBase& step, int document, int layer);

/// Whether slots, keys and queue of a pool agree with each other.
bool consistent(const Pool& pool);

}  // namespace expertmiss
