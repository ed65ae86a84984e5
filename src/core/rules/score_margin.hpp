// Fetched when s >= (1 + alpha) s_(K+1); others only from residents in ((1 - alpha) s_(K+1), s_(K+1)]; without a
// (K+1)-th expert every miss is fetched. Refused with a bias, so s = p; softmax ratios are exp(z_i - z_(K+1)) (SMoE,
// arXiv 2508.18983).
#pragma once

#include "math.hpp"
#include "rules/base.hpp"

namespace expertmiss {

struct ScoreMargin : RuleBase {
    static constexpr bool kAlwaysFallsBackToFetch = true;
    double alpha = 0.0;

    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [&](int rank) {
            return !view.has_next() || score(view, rank) >= (1.0 + alpha) * reference(view) ? Verdict::fetch
                                                                                            : Verdict::substitute;
        });
    }

    Candidates candidates(const StepView& view) const {
        int end = view.top_k;
        const double bound = (1.0 - alpha) * reference(view);
        while (end < view.row.depth && score(view, end) > bound) ++end;
        return {view.top_k, end, end == view.row.depth && !view.complete()};
    }

  private:
    // Scores relative to s_(K+1) for softmax, absolute for sigmoid.
    static double score(const StepView& view, int rank) {
        return view.model.gating == Gating::softmax ? core_exp(view.z(rank) - view.z(view.top_k)) : view.p(rank);
    }
    static double reference(const StepView& view) {
        return view.model.gating == Gating::softmax ? 1.0 : view.p(view.top_k);
    }
};

}  // namespace expertmiss
