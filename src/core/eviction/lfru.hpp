// Least frequently and recently used: smallest in_cache freq / (t - last + 1).
#pragma once

#include "eviction/counting.hpp"
#include "eviction/scan.hpp"

namespace expertmiss {

struct Lfru {
    Counting counting() const { return {Counted::residents, 0, {}}; }
    // Both numbers are integers below 2^31, whose quotients compare in float64 as they do exactly.
    int victim(Pool& pool, bool respect) const {
        for (int slot = 0; slot < pool.size; ++slot)
            pool.slot_score[slot] = pool.slot_freq[slot] / static_cast<double>(pool.t - pool.slot_last(slot) + 1);
        return smallest_score(pool, pool.slot_score.data(), respect);
    }
};

}  // namespace expertmiss
