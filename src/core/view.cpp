#include "view.hpp"

#include <algorithm>

#include "weights.hpp"

namespace expertmiss {

double StepView::p(int rank) const {
    return model.gating == Gating::softmax ? core_exp(z(rank) - row.lse) : sigmoid(z(rank));
}

void StepView::compute_weights() const {
    double* w = weights_.data();
    if (row.z32 != nullptr)
        std::copy_n(row.z32, top_k, w);
    else
        std::copy_n(row.z64, top_k, w);
    largest_ = w[0];
    if (model.has_bias())
        for (int rank = 1; rank < top_k; ++rank) largest_ = std::max(largest_, w[rank]);
    gate_values(model.gating, largest_, w, top_k);
    sum_ = positive_sum(w, top_k);
    for (int rank = 0; rank < top_k; ++rank) w[rank] /= sum_;
    weights_ready_ = true;
}

double StepView::weight(int rank) const {
    const double* w = weights();
    if (rank >= 0 && rank < top_k) return w[rank];
    return (model.gating == Gating::softmax ? core_exp(z(rank) - largest_) : sigmoid(z(rank))) / sum_;
}

}  // namespace expertmiss
