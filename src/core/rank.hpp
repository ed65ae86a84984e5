// Rank order of router logits (definitions, "Setting").
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"
#include "row.hpp"

namespace expertmiss {

/// A logit that is not a finite number.
struct NonFiniteLogit : std::invalid_argument {
    explicit NonFiniteLogit(int expert_)
        : std::invalid_argument("the logit of expert " + std::to_string(expert_) + " is not finite"), expert(expert_) {}
    int expert;
};

/// Ranks one row at a time. Keeps its arrays between rows.
///
/// Ranked by logits alone, a row is dealt into E buckets of equal width, which orders it coarsely in one pass; ranks
/// are then put in order only as far as somebody looks. With a bias, group limits or the mutant everything is sorted.
class Ranker {
  public:
    Ranker(const Model& model, int depth, bool tie_higher_id = false);

    /// Ranks logits z [E] of a layer; the row points into this object and lives until the next call.
    /// `ranks`: how many of the first ranks to put in order; those below hold the other experts in any order until
    /// extend(). `lse`: whether the row's log-sum-exp is wanted; it is NaN otherwise.
    /// Throws NonFiniteLogit.
    template <class Logit>
    Row rank(const Logit* z, int layer, int ranks, bool lse = true);
    /// All of it.
    template <class Logit>
    Row rank(const Logit* z, int layer) {
        return rank(z, layer, depth_);
    }
    /// Puts the first `ranks` of the last row in order, in place.
    void extend(int ranks);
    /// How many are.
    int ordered() const { return ordered_; }

  private:
    struct Scored {
        double score;
        int id;
    };
    template <class Logit>
    void deal(const Logit* z, Logit largest, Logit smallest);
    double log_sum_exp(double largest);
    void sort_all(const double* score);
    void score_groups(const double* s);

    const Model& model_;
    const int depth_;
    const bool tie_higher_id_;
    std::vector<double> z_;              // [E] widened
    std::vector<double> scratch_;        // [E]
    std::vector<Scored> scored_;         // candidates
    std::vector<std::uint8_t> allowed_;  // by expert
    std::vector<Scored> groups_;         // by group
    std::vector<std::uint16_t> ids_;     // [E] by rank
    std::vector<double> sorted_z_;       // [E] by rank
    std::vector<int> bucket_;            // [E] by expert
    std::vector<int> bucket_end_;        // [E] by bucket, best first
    int ordered_ = 0;
};

}  // namespace expertmiss
