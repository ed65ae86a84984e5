// All choosers of substitutes.
#pragma once

#include <variant>

#include "choosers/matched_random.hpp"
#include "choosers/random.hpp"
#include "choosers/router_rank.hpp"

namespace expertmiss {

using Chooser = std::variant<RouterRank, Random, MatchedRandom>;

inline Choice choose(const Chooser& chooser, const StepView& view, Candidates& within, const Place& place,
                     CandidateList& scratch) {
    return std::visit([&](const auto& way) { return way.choose(view, within, place, scratch); }, chooser);
}

}  // namespace expertmiss
