// Counters of one segment and layer (definitions, "Measures").
#pragma once

#include <cstdint>

namespace expertmiss {

struct Counters {
    std::int64_t tokens = 0, calls = 0, hits = 0, fetches = 0, substituted = 0, dropped = 0;
    std::int64_t fallback_fetches = 0, fallback_drops = 0;
    std::int64_t landings = 0, evictions = 0, wasted = 0;  // of this layer's experts
    std::int64_t compulsory = 0, collision = 0, capacity = 0;
    std::int64_t reswaps = 0, past_depth = 0;
    std::int64_t kept = 0;      // sum of |executed n S|
    double mass = 0.0;          // substituted gate mass
    double dropped_mass = 0.0;  // w of dropped calls, fallback drops included
    double heaviest = 0.0;      // sum over tokens of the largest substituted w
    double kl = 0.0;            // sum of KL(executed || router), nats
};

/// An expert substituted again within this many tokens of its last substitution is a re-swap.
inline constexpr int kReswapTokens = 16;

}  // namespace expertmiss
