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
class Ranker {
  public:
    Ranker(const Model& model, int depth, bool tie_higher_id = false);

    /// Ranks logits z [E] of a layer; the row points into this object and lives until the next call.
    /// Throws NonFiniteLogit.
    template <class Logit>
    Row rank(const Logit* z, int layer);

  private:
    struct Scored {
        double score;
        int id;
    };
    void score_groups(const double* s);

    const Model& model_;
    const int depth_;
    const bool tie_higher_id_;
    std::vector<double> z_;              // [E] widened
    std::vector<double> scratch_;        // [E]
    std::vector<Scored> scored_;         // candidates
    std::vector<std::uint8_t> allowed_;  // by group
    std::vector<Scored> groups_;         // by group
    std::vector<std::uint16_t> ids_;     // [M]
    std::vector<double> sorted_z_;       // [M]
};

}  // namespace expertmiss
