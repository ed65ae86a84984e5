// Gate values of a set of experts.
#pragma once

#include <stdexcept>

#include "math.hpp"
#include "model.hpp"

namespace expertmiss {

inline double sigmoid(double z) { return 1.0 / (1.0 + core_exp(-z)); }

/// Replaces logits by exp(z - shift) (softmax) or sigmoid(z).
void gate_values(Gating gating, double shift, double* values, int count);

/// The sum, added in order. Throws std::invalid_argument when it is zero (all sigmoids underflow) or not a number.
inline double positive_sum(const double* values, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; ++i) sum += values[i];
    if (!(sum > 0.0))
        throw std::invalid_argument("the gate values of the selected experts sum to zero or are not numbers");
    return sum;
}

}  // namespace expertmiss
