// Least frequently used: smallest freq, counted over all requests since the reset (lifetime), over those since the
// expert entered (in_cache), or with the weight of a request halving every `half_life` tokens.
#pragma once

#include "eviction/counting.hpp"
#include "eviction/scan.hpp"
#include "math.hpp"

namespace expertmiss {

struct Lfu {
    enum class Variant { lifetime, in_cache, half_life };
    Variant variant = Variant::lifetime;
    int half_life = 128;

    Counting counting() const {
        if (variant == Variant::in_cache) return {Counted::residents, 0, {}};
        if (variant == Variant::lifetime) return {Counted::everyone, 0, {}};
        return {Counted::everyone, half_life, half_life_table(half_life)};
    }
    int victim(Pool& pool, bool respect) const { return smallest_score(pool, pool.slot_freq.data(), respect); }
};

}  // namespace expertmiss
