// The decision log: one row per call of X, one per landing; columns, so that they become numpy arrays without copying.
#pragma once

#include <cstdint>
#include <vector>

#include "step.hpp"

namespace expertmiss {

struct CallLog {
    std::vector<std::int32_t> document, t;
    std::vector<std::int16_t> layer, rank;
    std::vector<std::uint16_t> expert;
    std::vector<std::uint8_t> verdict;
    std::vector<std::int32_t> substitute, victim;
    std::vector<double> weight, executed_weight;

    std::size_t size() const { return document.size(); }
    void resize(std::size_t rows);
    /// Writes the K rows of a step from row `at` on.
    void write(std::size_t at, int document, int layer, const StepBase& step);
};

struct LandingLog {
    std::vector<std::int32_t> document, t;
    std::vector<std::int16_t> layer;
    std::vector<std::uint16_t> expert;
    std::vector<std::int32_t> victim;
    std::vector<std::int64_t> token;  // index in the trace, to bring layers into serial order

    /// Appends the landings of a step. `first_layer`: absolute layer of the pool's layer 0.
    void append(int document, int first_layer, std::int64_t token, const StepBase& step);
    void append(const LandingLog& other, std::size_t row);
    std::size_t size() const { return document.size(); }
};

/// Merges the logs of pools into serial order (token, pool).
LandingLog merge(const std::vector<LandingLog>& pools);

}  // namespace expertmiss
