// The residents every start begins with.
#pragma once

#include <cstdint>
#include <vector>

#include "policy.hpp"

namespace expertmiss {

/// Keys in order of insertion, one list per pool. `counts` [L * E] (initial warm): requests in the calibration split.
/// Throws std::invalid_argument when counts are needed and missing.
std::vector<std::vector<int>> initial_orders(const Model& model, const Policy& policy, int capacity,
                                             const std::int64_t* counts, std::uint64_t seed);

}  // namespace expertmiss
