// Re-routes: true ranks < J, then residents of rank < M, then the remaining true ranks, until K (colibri).
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct MaxRank : ReroutingRule {
    int always = 0;  // J
    int limit = 0;   // M

    bool request(const StepView& view, Pool&, int* ranks) const {
        const int end = std::min(limit, view.row.depth);  // group limits may leave fewer than M ranks
        int count = 0;
        const auto wanted = [&](int rank) { return rank < always || (rank < end && view.resident(rank)); };
        for (int rank = 0; rank < end && count < view.top_k; ++rank)
            if (wanted(rank)) ranks[count++] = rank;
        for (int rank = 0; count < view.top_k; ++rank)
            if (!wanted(rank)) ranks[count++] = rank;
        std::sort(ranks, ranks + view.top_k);
        return false;
    }
};

}  // namespace expertmiss
