// The initial residents from numpy's request counts.
#pragma once

#include <optional>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "initial.hpp"

namespace expertmiss {

/// Throws std::invalid_argument when counts [L, E] have another shape, or are needed and missing.
inline std::vector<std::vector<int>> initial_orders_of(const Model& model, const Policy& policy, int capacity,
                                                       const std::optional<Input<std::int64_t, 2>>& counts,
                                                       std::int64_t seed) {
    if (counts && (counts->shape(0) != static_cast<std::size_t>(model.layers) ||
                   counts->shape(1) != static_cast<std::size_t>(model.experts)))
        throw std::invalid_argument("counts must be [layers, experts] = [" + std::to_string(model.layers) + ", " +
                                    std::to_string(model.experts) + "]");
    return initial_orders(model, policy, capacity, counts ? counts->data() : nullptr, static_cast<std::uint64_t>(seed));
}

}  // namespace expertmiss
