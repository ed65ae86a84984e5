// The first choice and every miss with w >= F / K are fetched, the others dropped (BigMoeOnEdge).
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct DropCold : RuleBase {
    double factor = 0.0;  // F

    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [&](int rank) {
            return rank == 0 || view.weights()[rank] >= factor / view.top_k ? Verdict::fetch : Verdict::drop;
        });
    }
};

}  // namespace expertmiss
