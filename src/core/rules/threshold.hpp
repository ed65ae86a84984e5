// The first choice and every miss with gate weight w >= tau are fetched (the paper; its rule has tau = 0.15).
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct Threshold : RuleBase {
    double tau = 0.0;

    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [&](int rank) {
            return rank == 0 || view.weights()[rank] >= tau ? Verdict::fetch : Verdict::substitute;
        });
    }
};

}  // namespace expertmiss
