// How an eviction counts requests (freq).
#pragma once

#include <vector>

namespace expertmiss {

enum class Counted {
    none,       // lru, fifo, opt
    residents,  // in_cache: 0 on insertion
    everyone,   // lifetime and half_life: kept across evictions
};

struct Counting {
    Counted who = Counted::none;
    int half_life = 0;          // tokens; 0: every request adds 1
    std::vector<double> table;  // T[j] = 2^(j / half_life)
};

}  // namespace expertmiss
