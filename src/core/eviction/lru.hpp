// Least recently used: smallest token of the last request.
#pragma once

#include "eviction/counting.hpp"
#include "eviction/scan.hpp"

namespace expertmiss {

struct Lru {
    Counting counting() const { return {}; }
    int victim(Pool& pool, bool respect) const { return smallest_order(pool, respect); }
};

}  // namespace expertmiss
