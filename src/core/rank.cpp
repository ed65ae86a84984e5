#include "rank.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "math.hpp"
#include "weights.hpp"

namespace expertmiss {

Ranker::Ranker(const Model& model, int depth, bool tie_higher_id)
    : model_(model),
      depth_(depth),
      tie_higher_id_(tie_higher_id),
      z_(model.experts),
      scratch_(model.experts),
      allowed_(model.groups.count, 1),
      groups_(model.groups.count),
      ids_(depth),
      sorted_z_(depth) {
    scored_.reserve(static_cast<std::size_t>(model.experts));
}

template <class Logit>
Row Ranker::rank(const Logit* z, int layer) {
    const int experts = model_.experts;
    double largest = z[0], smallest = z[0];
    for (int id = 0; id < experts; ++id) {
        z_[id] = static_cast<double>(z[id]);
        if (!std::isfinite(z_[id])) throw NonFiniteLogit(id);
        largest = std::max(largest, z_[id]);
        smallest = std::min(smallest, z_[id]);
    }
    // log sum exp over all E, added in ascending id.
    scratch_ = z_;
    gate_values(Gating::softmax, largest, scratch_.data(), experts);
    double sum = 0.0;
    for (int id = 0; id < experts; ++id) sum += scratch_[id];
    const double lse = largest + core_log(sum);

    const double* score = z_.data();
    const double* bias = model_.layer_bias(layer);
    if (bias != nullptr || model_.has_groups()) {
        scratch_ = z_;
        gate_values(model_.gating, lse, scratch_.data(), experts);
        if (bias != nullptr) {
            for (int id = 0; id < experts; ++id) scratch_[id] += bias[id];
            score = scratch_.data();
        }
        if (model_.has_groups()) score_groups(scratch_.data());
    }

    scored_.clear();
    const int group_size = experts / model_.groups.count;
    for (int id = 0; id < experts; ++id)
        if (allowed_[id / group_size] != 0) scored_.push_back({score[id], id});
    const auto before = [&](const Scored& a, const Scored& b) {
        return a.score > b.score || (a.score == b.score && (tie_higher_id_ ? a.id > b.id : a.id < b.id));
    };
    const auto end = scored_.begin() + depth_;
    if (end != scored_.end()) std::nth_element(scored_.begin(), end, scored_.end(), before);
    std::sort(scored_.begin(), end, before);
    for (int rank = 0; rank < depth_; ++rank) {
        ids_[rank] = static_cast<std::uint16_t>(scored_[rank].id);
        sorted_z_[rank] = z_[scored_[rank].id];
    }
    return {.ids = ids_.data(), .z32 = nullptr, .z64 = sorted_z_.data(), .lse = lse, .zmin = smallest, .depth = depth_};
}

/// Marks the `allowed` groups of largest score (max, or sum of the two largest s); ties to the lower group.
void Ranker::score_groups(const double* s) {
    const int count = model_.groups.count;
    const int size = model_.experts / count;
    for (int group = 0; group < count; ++group) {
        double first = -std::numeric_limits<double>::infinity(), second = first;
        for (int id = group * size; id < (group + 1) * size; ++id) {
            if (s[id] > first) {
                second = first;
                first = s[id];
            } else {
                second = std::max(second, s[id]);
            }
        }
        const bool pair = model_.groups.score == GroupScore::top2_sum && size > 1;
        groups_[group] = {pair ? first + second : first, group};
    }
    std::sort(groups_.begin(), groups_.end(), [](const Scored& a, const Scored& b) {
        return a.score > b.score || (a.score == b.score && a.id < b.id);
    });
    std::fill(allowed_.begin(), allowed_.end(), std::uint8_t{0});
    for (int place = 0; place < model_.groups.allowed; ++place) allowed_[groups_[place].id] = 1;
}

template Row Ranker::rank<float>(const float*, int);
template Row Ranker::rank<double>(const double*, int);

}  // namespace expertmiss
