// Uniform over the candidates: a null arm.
#pragma once

#include "choosers/base.hpp"
#include "draw.hpp"

namespace expertmiss {

/// The drawn one of a non-empty list, taken in ascending id.
inline Choice draw_candidate(CandidateList& list, std::uint64_t seed, const Place& place) {
    std::sort(list.begin(), list.end());
    const auto index = draw(seed, {place.document, place.layer, place.t, place.rank}) % list.size();
    return {list[index].first, list[index].second, list[index].second == kBelowDepth};
}

struct Random {
    std::uint64_t seed = 0;

    Choice choose(const StepView& view, Candidates& within, const Place& place, CandidateList& scratch) const {
        list_candidates(view, within, scratch);
        add_hidden(view, within, scratch);
        return scratch.empty() ? Choice{} : draw_candidate(scratch, seed, place);
    }
};

}  // namespace expertmiss
