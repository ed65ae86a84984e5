// Re-routes: X = top-K of z + lambda Delta [resident or rank < J], ties by z, then id. Delta is the mean of max z - min
// z over this layer's steps since the initial state, this one included (Skliar et al., arXiv 2412.00099). Refused with
// a bias or group limits, so rank order is z falling, then id rising.
#pragma once

#include <algorithm>

#include "rules/base.hpp"

namespace expertmiss {

struct CachePrior : ReroutingRule {
    double lambda = 0.0;
    int always = 0;  // J

    bool request(const StepView& view, Pool& pool, int* ranks) const {
        pool.range_sum[view.layer] += view.z(0) - view.row.zmin;
        pool.range_steps[view.layer] += 1;
        const double bonus = lambda * (pool.range_sum[view.layer] / static_cast<double>(pool.range_steps[view.layer]));

        // Two lists in rank order, with and without the bonus, merged by (score, rank).
        const int depth = view.row.depth;
        const auto next = [&](int rank, bool favoured) {
            while (rank < depth && (rank < always || view.resident(rank)) != favoured) ++rank;
            return rank;
        };
        int with = next(0, true), without = next(0, false);
        double lowest = 0.0;
        for (int count = 0; count < view.top_k; ++count) {
            const double raised = with < depth ? view.z(with) + bonus : 0.0;
            const double plain = without < depth ? view.z(without) : 0.0;
            const bool take_raised =
                without == depth || (with < depth && (raised > plain || (raised == plain && with < without)));
            lowest = take_raised ? raised : plain;
            ranks[count] = take_raised ? with : without;
            (take_raised ? with : without) = next(ranks[count] + 1, take_raised);
        }
        std::sort(ranks, ranks + view.top_k);
        return !view.complete() && bonus > 0.0 && lowest <= view.z(depth - 1) + bonus && hidden_residents(view);
    }

  private:
    /// Whether residents of this layer are missing from the stored ranks.
    static bool hidden_residents(const StepView& view) {
        int total = 0, seen = 0;
        for (int expert = 0; expert < view.model.experts; ++expert) total += view.pool.resident(view.base + expert);
        for (int rank = 0; rank < view.row.depth; ++rank) seen += view.resident(rank);
        return seen < total;
    }
};

}  // namespace expertmiss
