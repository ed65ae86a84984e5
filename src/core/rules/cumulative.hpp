// With c the gate weight of all calls of smaller rank, hits included: fetched while c <= T1, dropped once c > T2,
// substituted between (HOBBIT, without its low-precision copy).
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct Cumulative : RuleBase {
    double t1 = 0.0;
    double t2 = 0.0;

    void decide(const StepView& view, Verdict* verdicts) const {
        double before = 0.0;
        int rank = 0;
        for_misses(view, verdicts, [&](int miss) {
            for (; rank < miss; ++rank) before += view.weights()[rank];
            return before <= t1 ? Verdict::fetch : before > t2 ? Verdict::drop : Verdict::substitute;
        });
    }
};

}  // namespace expertmiss
