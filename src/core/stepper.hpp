// The closed loop: a policy's state, stepped with the logits of a running model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "log.hpp"
#include "meters.hpp"
#include "policy.hpp"
#include "rank.hpp"

namespace expertmiss {

/// Which ranks a step looks at beyond a fixed number: none or all; or as many as hold enough residents, enough both of
/// those that cache_prior favours and of the others, or all scores within score_margin's margin.
enum class RankSearch { nothing, whole_row, residents, favoured, margin };

class Stepper {
  public:
    /// Throws std::invalid_argument for what check_policy refuses, and for eviction opt, which needs the future.
    Stepper(Model model, Policy policy, int capacity, std::vector<std::vector<int>> orders, bool log, bool kl,
            bool check);
    Stepper(const Stepper&) = delete;  // its steps refer to its pools
    Stepper& operator=(const Stepper&) = delete;

    /// Starts a document: the initial state, or with state carry only another document id. Counters restart.
    void reset(int document);
    /// One token in one layer, logits z [E]; the returned step is readable until the next one. Its row is in rank order
    /// only as far as the step had to look, and has no log-sum-exp if nothing needed it, unless `whole_row`.
    /// `arrived`: queued experts that land in this step, in this order, whatever their due token (scope layer only).
    template <class Logit>
    const StepBase& step(int layer, const Logit* z, bool whole_row = false, const std::vector<int>* arrived = nullptr);

    std::vector<int> residents(int layer) const;
    std::string snapshot() const;
    void restore(const std::string& bytes);

    const Model& model() const { return model_; }
    const Policy& policy() const { return policy_; }
    const Pool& pool_of(int layer) const { return global_ ? *pools_[0] : *pools_[layer]; }
    const std::vector<Counters>& counters() const { return counters_; }
    const std::vector<std::vector<int>>& orders() const { return orders_; }
    int document() const { return document_; }
    int layer_in_pool(int layer) const { return global_ ? layer : 0; }
    void require_layer(int layer) const;

    CallLog calls;
    LandingLog landings;

  private:
    void extend_row(const Row& row, const Pool& pool, int base);
    void require_queued(const Pool& pool, const std::vector<int>& arrived) const;

    const Model model_;
    const Policy policy_;
    const int capacity_;
    const std::vector<std::vector<int>> orders_;
    const bool log_, check_, global_;
    const bool needs_lse_;
    const RankSearch search_;
    const int least_ranks_;  // that every step looks at
    std::vector<std::unique_ptr<Pool>> pools_;
    std::vector<std::unique_ptr<StepBase>> steps_;
    Ranker ranker_;
    std::vector<Counters> counters_;  // [layers] since the last reset
    int document_ = 0;
    int next_layer_ = 0;  // scope global: the only layer that may come next
};

}  // namespace expertmiss
