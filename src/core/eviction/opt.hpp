// Belady's optimum: the expert whose next request before the next reset comes last. Needs the future, so it runs on
// recorded traces only, and only under fetch_all, whose requests do not depend on the cache.
#pragma once

#include <cstdint>

#include "eviction/counting.hpp"
#include "eviction/scan.hpp"

namespace expertmiss {

struct Opt {
    /// Minus the serial position of a next request that never comes: before all others, so evicted first.
    static constexpr std::int64_t kNoUse = -(std::int64_t{1} << 62);

    Counting counting() const { return {}; }
    int victim(Pool& pool, bool respect) const { return smallest_score(pool, pool.slot_next_use.data(), respect); }
};

}  // namespace expertmiss
