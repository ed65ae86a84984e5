// One token in one layer: its experts in rank order, with their logits.
#pragma once

#include <cstdint>

namespace expertmiss {

/// Rank of an expert below the stored depth: its order and logit are unknown, its logit is taken as the smallest, zmin.
inline constexpr int kBelowDepth = -1;

struct Row {
    const std::uint16_t* ids = nullptr;      // [depth]
    const float* z32 = nullptr;              // [depth] of a trace, or
    const double* z64 = nullptr;             // [depth] of a running model
    double lse = 0.0;                        // log sum exp over all E
    double zmin = 0.0;                       // smallest logit over all E
    int depth = 0;                           // M
    const std::int64_t* next_use = nullptr;  // [K] eviction opt only, as Pool::slot_next_use

    double z(int rank) const {
        if (rank == kBelowDepth) return zmin;
        return z32 != nullptr ? static_cast<double>(z32[rank]) : z64[rank];
    }
};

}  // namespace expertmiss
