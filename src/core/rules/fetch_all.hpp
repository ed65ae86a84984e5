// Every miss is fetched: the lossless reference.
#pragma once

#include "rules/base.hpp"

namespace expertmiss {

struct FetchAll : RuleBase {
    void decide(const StepView& view, Verdict* verdicts) const {
        for_misses(view, verdicts, [](int) { return Verdict::fetch; });
    }
};

}  // namespace expertmiss
