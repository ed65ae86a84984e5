// One step: one token in one layer, as in the definitions, "One step". The simulator, the emulator and the engine all
// run this code. A Step keeps its arrays between steps and allocates nothing while stepping.
#pragma once

#include <memory>

#include "meters.hpp"
#include "policy.hpp"
#include "pool.hpp"
#include "view.hpp"

namespace expertmiss {

struct StepOptions {
    bool weights = false;  // compute executed weights
    bool kl = false;       // and KL(executed || router)
};

struct Landed {
    int key;
    int victim;  // key, -1 none
};

/// What one step leaves to be read until the next one.
class StepBase {
  public:
    StepBase(const Model& model, const Policy& policy, Pool& pool, StepOptions options);
    virtual ~StepBase() = default;
    StepBase(const StepBase&) = delete;
    StepBase& operator=(const StepBase&) = delete;

    /// `layer` is absolute; `layer_in_pool` indexes `counters` and is 0 for scope layer.
    virtual void run(int document, int layer, int layer_in_pool, const Row& row, Counters* counters) = 0;

    /// The expert executed for a call (its substitute, or itself), -1 none; `rank` as in Calls.
    int executed(int call) const;
    int executed_rank(int call) const;

    const Model& model;
    const Policy& policy;
    Pool& pool;
    const StepOptions options;
    Calls calls;
    StepView view;
    std::vector<Landed> landed;  // by step 1 of this step
    // Keys of Q that step 1 lands, in this order, in place of those that are due; null: those that are due.
    const std::vector<int>* arrived = nullptr;

  protected:
    // The steps that no rule has a part in; see step.cpp.
    void start(const Row& row, int layer_in_pool, Counters* counters);  // 0
    void land();                                                        // 1
    void land(int key);
    void protect_needed(bool rerouted);
    int bring_in(int key, bool respect_protection);  // insert, evict where full; returns the victim's key
    void fetch(int call);
    void classify_miss(int key);
    void count_substituted(double weight);
    void count_reswap(int key);
    void require_fallback_possible() const;
    void execute(bool rerouted);  // 6
    void update();                // 7
    void admit();                 // 8

    Counters* counters_ = nullptr;  // of the pool's layers
    Counters* counter_ = nullptr;   // of this layer
    int misses_ = 0;
    int substitutes_ = 0;  // calls the rule has substituted
    int drops_ = 0;        // calls the rule drops
    int rescued_ = 0;      // of the substitutes, those that fell back to a fetch
    double heaviest_ = 0.0;
    bool past_depth_ = false;
    bool stale_answers_ = true;  // substitutes and victims of the last step are still there
    CandidateList candidates_;

  private:
    void weigh();
    double divergence() const;
    std::vector<double> gates_;  // of executed experts, in order of execution
};

template <class Rule>
class Step final : public StepBase {
  public:
    Step(const Model& model_, const Policy& policy_, const Rule& rule, Pool& pool_, StepOptions options_)
        : StepBase(model_, policy_, pool_, options_), rule_(rule) {}

    void run(int document, int layer, int layer_in_pool, const Row& row, Counters* counters) override {
        start(row, layer_in_pool, counters);       // 0
        if (layer_in_pool == 0) land();            // 1
        if constexpr (Rule::kReroutes) request();  // 2: else X = S
        judge();                                   // 3
        if (misses_ > 0) {
            protect_needed(Rule::kReroutes);
            fetch_misses();               // 4
            substitute(document, layer);  // 5
        }
        execute(Rule::kReroutes);       // 6
        update();                       // 7
        if (substitutes_ > 0) admit();  // 8
        if constexpr (Rule::kReroutes) count_rerouted();
        counter_->heaviest += heaviest_;
        counter_->past_depth += past_depth_;
    }

  private:
    void request() { past_depth_ = rule_.request(view, pool, calls.rank.data()); }

    void judge() {
        const int k = view.top_k;
        for (int call = 0; call < k; ++call) calls.slot[call] = pool.slot_of[view.key(calls.rank[call])];
        misses_ = 0;
        for (int call = 0; call < k; ++call) {
            if (calls.slot[call] >= 0) {
                calls.verdict[call] = Verdict::hit;
                pool.slot_hit[calls.slot[call]] = 1;
            } else {
                ++misses_;
                classify_miss(view.key(calls.rank[call]));
            }
        }
        counter_->hits += k - misses_;
        if (misses_ > 0) rule_.decide(view, calls.verdict.data());
    }

    void fetch_misses() {
        for (int call = 0; call < view.top_k; ++call)
            if (calls.verdict[call] == Verdict::fetch) {
                fetch(call);
                ++counter_->fetches;
            } else if (calls.verdict[call] == Verdict::drop) {
                ++drops_;
                ++counter_->dropped;
                counter_->dropped_mass += view.weights()[call];
            } else if (calls.verdict[call] == Verdict::substitute) {
                ++substitutes_;
            }
    }

    void substitute(int document, int layer) {
        if (substitutes_ == 0) return;
        Candidates within = rule_.candidates(view);
        for (int call = 0; call < view.top_k; ++call) {
            if (calls.verdict[call] != Verdict::substitute) continue;
            const int rank = calls.rank[call];
            const Choice choice = choose(policy.chooser, view, within, {document, layer, pool.t, rank}, candidates_);
            past_depth_ |= choice.past_depth;
            if (choice.expert >= 0) {
                calls.substitute[call] = choice.expert;
                calls.substitute_rank[call] = choice.rank;
                pool.protect(pool.slot_of[view.base + choice.expert]);
                count_substituted(view.weights()[rank]);
                count_reswap(view.key(rank));
                stale_answers_ = true;
                continue;
            }
            if constexpr (!Rule::kAlwaysFallsBackToFetch) require_fallback_possible();
            if (Rule::kAlwaysFallsBackToFetch || policy.fallback == Fallback::fetch) {
                calls.verdict[call] = Verdict::fallback_fetch;
                fetch(call);
                ++rescued_;
                ++counter_->fallback_fetches;
            } else {
                calls.verdict[call] = Verdict::fallback_drop;
                ++counter_->fallback_drops;
                counter_->dropped_mass += view.weights()[rank];
            }
        }
    }

    /// The calls of S \ X count as substituted with their true w.
    void count_rerouted() {
        int call = 0;
        for (int rank = 0; rank < view.top_k; ++rank) {
            while (call < view.top_k && calls.rank[call] < rank) ++call;
            if (call == view.top_k || calls.rank[call] != rank) count_substituted(view.weights()[rank]);
        }
    }

    const Rule rule_;
};

/// The Step of a policy's rule, where the rule is known only at run time.
std::unique_ptr<StepBase> make_step(const Model& model, const Policy& policy, Pool& pool, StepOptions options);

}  // namespace expertmiss
