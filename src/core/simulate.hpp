// Replays a policy over a recorded trace.
#pragma once

#include <cstdint>
#include <vector>

#include "log.hpp"
#include "meters.hpp"
#include "policy.hpp"

namespace expertmiss {

/// One layer of a ranked trace, row-major, not owned.
struct TraceLayer {
    const std::uint16_t* ids;  // [T, M]
    const float* z;            // [T, M]
    const double* lse;         // [T]
    const float* zmin;         // [T]
};

struct Trace {
    std::vector<TraceLayer> layers;
    const std::int32_t* document;  // [T]
    std::int64_t tokens;
    int depth;  // M
};

/// A run of tokens of one document; the state resets before each (state reset).
struct Segment {
    std::int64_t begin, end;
    std::int32_t document;
};

struct SimulationOptions {
    bool log = false;
    bool kl = true;
    bool check = false;
    int threads = 1;
};

struct Simulation {
    std::vector<Segment> segments;
    std::vector<Counters> counters;  // [segments, layers]
    CallLog calls;                   // T * L * K rows when logged
    LandingLog landings;
};

/// `orders`: initial residents of each pool (initial.hpp). The policy has been checked against model, capacity and
/// depth. Throws std::invalid_argument for ids or logits that a sound trace does not hold, std::logic_error for a
/// violated invariant.
Simulation simulate(const Trace& trace, const Model& model, const Policy& policy, int capacity,
                    const std::vector<std::vector<int>>& orders, const SimulationOptions& options);

}  // namespace expertmiss
