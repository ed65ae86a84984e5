// Which resident leaves. An eviction is a struct of its parameters with
//   counting()              how it counts requests
//   victim(pool, respect)   the slot to vacate among those not protected (respect false: among all), -1 without any
#pragma once

#include <variant>

#include "eviction/fifo.hpp"
#include "eviction/lfru.hpp"
#include "eviction/lfu.hpp"
#include "eviction/lru.hpp"
#include "eviction/opt.hpp"

namespace expertmiss {

using Eviction = std::variant<Lru, Fifo, Lfu, Lfru, Opt>;

inline Counting counting_of(const Eviction& eviction) {
    return std::visit([](const auto& policy) { return policy.counting(); }, eviction);
}

inline int find_victim(const Eviction& eviction, Pool& pool, bool respect) {
    return std::visit([&](const auto& policy) { return policy.victim(pool, respect); }, eviction);
}

}  // namespace expertmiss
