// What a miss rule and a chooser may look at (StepView), and what a rule answers with (Calls).
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"
#include "pool.hpp"
#include "row.hpp"

namespace expertmiss {

enum class Verdict : std::uint8_t { hit, fetch, substitute, drop, fallback_fetch, fallback_drop };

/// The K calls of one step: X in true rank order, and what became of each.
struct Calls {
    explicit Calls(int top_k)
        : rank(top_k),
          slot(top_k),
          verdict(top_k),
          substitute(top_k),
          substitute_rank(top_k),
          victim(top_k),
          weight(top_k) {
        for (int call = 0; call < top_k; ++call) rank[call] = call;
    }
    std::vector<int> rank;  // true router rank; 0 .. K-1 unless the rule re-routes
    std::vector<int> slot;  // of residents as step 3 begins, else -1
    std::vector<Verdict> verdict;
    std::vector<int> substitute;       // expert, -1 none
    std::vector<int> substitute_rank;  // its rank, or kBelowDepth
    std::vector<int> victim;           // key, -1 none
    std::vector<double> weight;        // of the expert executed for this call; 0 when none
};

/// The ranks a substitute may have: from `begin` to `end`; `open`: experts below the stored depth qualify, too.
struct Candidates {
    int begin, end;
    bool open;
};

class StepView {
  public:
    StepView(const Model& model_, const Pool& pool_, const Calls& calls_)
        : model(model_), pool(pool_), calls(calls_), top_k(model_.top_k), weights_(model_.top_k) {}

    /// Step 0. `base` is the key of the layer's expert 0, `layer` its index in the pool.
    void start(const Row& row_, int base_, int layer_) {
        row = row_;
        base = base_;
        layer = layer_;
        weights_ready_ = false;
    }

    int expert(int rank) const { return row.ids[rank]; }
    int key(int rank) const { return base + row.ids[rank]; }
    /// False also for an id out of range, which only a damaged trace holds.
    bool resident(int rank) const { return row.ids[rank] < model.experts && pool.resident(key(rank)); }
    double z(int rank) const { return row.z(rank); }
    double p(int rank) const;
    /// w of the first K ranks, normalised over S.
    const double* weights() const {
        if (!weights_ready_) compute_weights();
        return weights_.data();
    }
    /// w of any rank.
    double weight(int rank) const;
    /// Whether the row holds every expert that can be ranked.
    bool complete() const { return row.depth == model.candidates(); }
    /// Whether there is a (K+1)-th expert.
    bool has_next() const { return model.candidates() > top_k; }

    const Model& model;
    const Pool& pool;
    const Calls& calls;
    const int top_k;
    Row row;
    int base = 0;
    int layer = 0;

  private:
    void compute_weights() const;
    mutable std::vector<double> weights_;
    mutable double largest_ = 0.0;  // max of z over S
    mutable double sum_ = 0.0;      // of the unnormalised weights over S
    mutable bool weights_ready_ = false;
};

}  // namespace expertmiss
