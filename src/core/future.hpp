// When each request's expert is requested next: what the eviction `opt` knows.
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"
#include "simulate.hpp"

namespace expertmiss {

/// Filled for one run of tokens between two resets, for the layers [first, last) of one pool.
struct Future {
    std::vector<std::int64_t>
        next_use;  // [tokens, layers, K] minus the serial position (t, layer, rank) of the next request
    std::vector<std::int64_t> first_use;  // [keys] of the first request

    void look(const Trace& trace, const Model& model, int first, int last, std::int64_t begin, std::int64_t end);
    const std::int64_t* at(std::int64_t t, int layer, int layers, int top_k) const {
        return next_use.data() + (t * layers + layer) * top_k;
    }
};

}  // namespace expertmiss
