// What the core must know about a model's router (a trace's metadata).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace expertmiss {

/// softmax_after_topk models are softmax with normalise = true: renormalising over the executed experts is the same.
enum class Gating { softmax, sigmoid };

enum class GroupScore { max, top2_sum };

/// Group-limited routing: E / count consecutive experts form a group, the `allowed` best groups are candidates.
struct Groups {
    int count = 1;
    int allowed = 1;
    GroupScore score = GroupScore::max;
};

struct Model {
    int layers = 0;
    int experts = 0;  // E
    int top_k = 0;    // K
    Gating gating = Gating::softmax;
    bool normalise = true;
    double scale = 1.0;
    std::vector<double> bias;  // [L * E], empty without one
    Groups groups;

    bool has_bias() const { return !bias.empty(); }
    bool has_groups() const { return groups.count > 1; }
    /// Experts that can be ranked at one step.
    int candidates() const { return experts / groups.count * groups.allowed; }
    const double* layer_bias(int layer) const {
        return has_bias() ? bias.data() + static_cast<std::size_t>(layer) * static_cast<std::size_t>(experts) : nullptr;
    }
};

/// Throws std::invalid_argument with one line for an impossible geometry.
void check_model(const Model& model);

}  // namespace expertmiss
