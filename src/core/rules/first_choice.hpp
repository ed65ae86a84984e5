// The first choice of the router (rank 0) is fetched (the paper).
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct FirstChoice : RuleBase {
    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [](int rank) { return rank == 0 ? Verdict::fetch : Verdict::substitute; });
    }
};

}  // namespace expertmiss
