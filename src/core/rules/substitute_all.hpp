// No miss is fetched (the paper).
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct SubstituteAll : RuleBase {
    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [](int) { return Verdict::substitute; });
    }
};

}  // namespace expertmiss
