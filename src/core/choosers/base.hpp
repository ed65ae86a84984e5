// The shape shared by all choosers: choose(view, candidates, place, scratch) -> Choice. A candidate is a resident of
// this layer within the rule's ranks whose slot is not protected (S, X and the substitutes taken so far are).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "view.hpp"

namespace expertmiss {

struct Choice {
    int expert = -1;  // -1: no candidate is left
    int rank = kBelowDepth;
    bool past_depth = false;  // the choice may depend on experts below the stored depth
};

/// Where a draw is made.
struct Place {
    int document, layer, t, rank;
};

inline bool is_candidate(const StepView& view, int rank) {
    return view.resident(rank) && !view.pool.is_protected(view.pool.slot_of[view.key(rank)]);
}

/// Candidates as (expert, rank).
using CandidateList = std::vector<std::pair<int, int>>;

/// Candidates among the stored ranks, in rank order.
inline void list_candidates(const StepView& view, const Candidates& within, CandidateList& list) {
    list.clear();
    for (int rank = within.begin; rank < within.end; ++rank)
        if (is_candidate(view, rank)) list.emplace_back(view.expert(rank), rank);
}

/// Adds the candidates below the stored depth as (expert, kBelowDepth), ids rising.
inline void add_hidden(const StepView& view, const Candidates& within, CandidateList& list) {
    if (!within.open) return;
    const auto* end = view.row.ids + view.row.depth;
    for (int expert = 0; expert < view.model.experts; ++expert) {
        const int slot = view.pool.slot_of[view.base + expert];
        if (slot < 0 || view.pool.is_protected(slot)) continue;
        if (std::find(view.row.ids, end, expert) == end) list.emplace_back(expert, kBelowDepth);
    }
}

/// When only experts below the stored depth are left: the lowest id, counted as past the depth.
inline Choice choose_hidden(const StepView& view, const Candidates& within, CandidateList& scratch) {
    scratch.clear();
    add_hidden(view, within, scratch);
    return scratch.empty() ? Choice{} : Choice{scratch.front().first, kBelowDepth, true};
}

}  // namespace expertmiss
