// Uniform over the candidates with z >= z_best - margin, where z_best is the largest z of a candidate: the null arm of
// the router's order at matched logits.
#pragma once

#include "choosers/base.hpp"
#include "choosers/random.hpp"

namespace expertmiss {

struct MatchedRandom {
    double margin = 0.0;
    std::uint64_t seed = 0;

    Choice choose(const StepView& view, Candidates& within, const Place& place, CandidateList& scratch) const {
        list_candidates(view, within, scratch);
        if (scratch.empty()) return choose_hidden(view, within, scratch);
        double best = view.z(scratch.front().second);
        for (const auto& candidate : scratch) best = std::max(best, view.z(candidate.second));
        std::erase_if(scratch, [&](const auto& candidate) { return view.z(candidate.second) < best - margin; });
        Choice choice = draw_candidate(scratch, seed, place);
        // Ranked by z, an expert below the depth is within the margin only if the last stored one is.
        if (within.open && (view.model.has_bias() || view.z(view.row.depth - 1) >= best - margin)) {
            scratch.clear();
            add_hidden(view, within, scratch);
            choice.past_depth = !scratch.empty();
        }
        return choice;
    }
};

}  // namespace expertmiss
