// The shape shared by all miss rules. A rule is a struct of its parameters with
//   kReroutes                              whether it replaces the requested set X (step 2)
//   kAlwaysFallsBackToFetch                whether a substitution without candidate is fetched whatever the policy says
//   request(view, pool, ranks) -> bool     re-routing rules only: X as true ranks, rising; true: may depend on experts
//                                          below the stored depth
//   decide(view, verdicts)                 answers every miss of X (step 3); hits are set already
//   candidates(view)                       the ranks a substitute may have (step 5)
#pragma once

#include "view.hpp"

namespace expertmiss {

struct RuleBase {
    static constexpr bool kReroutes = false;
    static constexpr bool kAlwaysFallsBackToFetch = false;
    Candidates candidates(const StepView& view) const { return {view.top_k, view.row.depth, !view.complete()}; }
};

/// Calls `answer(call)` for every miss in rank order and stores the verdict.
template <class Answer>
void for_misses(const StepView& view, Verdict* verdicts, Answer answer) {
    for (int call = 0; call < view.top_k; ++call)
        if (view.calls.slot[call] < 0) verdicts[call] = answer(call);
}

/// Re-routing rules: every miss of X is fetched.
struct ReroutingRule : RuleBase {
    static constexpr bool kReroutes = true;
    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [](int) { return Verdict::fetch; });
    }
};

}  // namespace expertmiss
