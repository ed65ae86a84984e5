// The first candidate in the router's rank order (the paper).
#pragma once

#include "choosers/base.hpp"

namespace expertmiss {

struct RouterRank {
    Choice choose(const StepView& view, Candidates& within, const Place&, CandidateList& scratch) const {
        for (; within.begin < within.end; ++within.begin)  // what it passes stays no candidate for the rest of the step
            if (is_candidate(view, within.begin)) return {view.expert(within.begin), within.begin, false};
        return choose_hidden(view, within, scratch);
    }
};

}  // namespace expertmiss
