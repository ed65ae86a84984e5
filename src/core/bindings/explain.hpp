// Everything one step saw and did, as a dict (Explanation in _core.pyi).
#pragma once

#include <functional>

#include "arrays.hpp"
#include "stepper.hpp"

namespace expertmiss {

/// `run` makes the step and returns it.
nb::dict explain(const Stepper& stepper, int layer, const std::function<const StepBase&()>& run);

nb::object ids_to_numpy(const std::vector<int>& ids);

}  // namespace expertmiss
