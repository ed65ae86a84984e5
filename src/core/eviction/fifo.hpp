// First in, first out: smallest `entered`.
#pragma once

#include "eviction/counting.hpp"
#include "eviction/scan.hpp"

namespace expertmiss {

struct Fifo {
    Counting counting() const { return {}; }
    int victim(Pool& pool, bool respect) const { return smallest_entered(pool, respect); }
};

}  // namespace expertmiss
