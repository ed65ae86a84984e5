#include "step.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "weights.hpp"

namespace expertmiss {
StepBase::StepBase(const Model& model_, const Policy& policy_, Pool& pool_, StepOptions options_)
    : model(model_),
      policy(policy_),
      pool(pool_),
      options(options_),
      calls(model_.top_k),
      view(model_, pool_, calls),
      gates_(static_cast<std::size_t>(model_.top_k)) {
    landed.reserve(pool.slot_of.size());
    candidates_.reserve(static_cast<std::size_t>(2 * model.experts));
}

int StepBase::executed(int call) const {
    if (calls.verdict[call] == Verdict::substitute) return calls.substitute[call];
    const bool dropped = calls.verdict[call] == Verdict::drop || calls.verdict[call] == Verdict::fallback_drop;
    return dropped ? -1 : view.expert(calls.rank[call]);
}

int StepBase::executed_rank(int call) const {
    return calls.verdict[call] == Verdict::substitute ? calls.substitute_rank[call] : calls.rank[call];
}

void StepBase::start(const Row& row, int layer_in_pool, Counters* counters) {
    int largest = 0;
    for (int rank = 0; rank < model.top_k; ++rank) largest = std::max<int>(largest, row.ids[rank]);
    if (largest >= model.experts)
        throw std::invalid_argument("expert id " + std::to_string(largest) + " is not below E");
    view.start(row, layer_in_pool * model.experts, layer_in_pool);
    counters_ = counters;
    counter_ = counters + layer_in_pool;
    ++counter_->tokens;
    counter_->calls += model.top_k;
    substitutes_ = drops_ = rescued_ = 0;
    heaviest_ = 0.0;
    past_depth_ = false;
    landed.clear();
    if (stale_answers_) {
        std::fill(calls.substitute.begin(), calls.substitute.end(), -1);
        std::fill(calls.victim.begin(), calls.victim.end(), -1);
        stale_answers_ = false;
    }
}

void StepBase::land() {
    pool.begin_token();
    if (pool.queue_size == 0) return;
    pool.begin_protection();
    if (arrived != nullptr) {
        for (const int key : *arrived) land(key);
        return;
    }
    const int cap = policy.upload_cap.value_or(std::numeric_limits<int>::max());
    while (pool.queue_size > 0 && static_cast<int>(landed.size()) < cap) {
        const QueueEntry entry = pool.queue_at(0);
        if (entry.due + policy.mutants.landing_late > pool.t) break;
        land(entry.key);
    }
}

void StepBase::land(int key) {
    pool.unqueue(key);
    landed.push_back({key, bring_in(key, true)});
    ++counters_[key / model.experts].landings;
}

void StepBase::protect_needed(bool rerouted) {
    pool.begin_protection();
    for (const int slot : calls.slot)
        if (slot >= 0) pool.protect(slot);
    if (!rerouted) return;
    for (int rank = 0; rank < model.top_k; ++rank)
        if (const int slot = pool.slot_of[view.key(rank)]; slot >= 0) pool.protect(slot);
}

int StepBase::bring_in(int key, bool respect_protection) {
    int victim = -1;
    int slot = pool.size;
    if (pool.full()) {
        slot = find_victim(policy.eviction, pool, respect_protection);
        if (slot < 0) throw std::logic_error("no resident can be evicted");
        victim = pool.slot_key[slot];
        pool.evict(slot);
        Counters& owner = counters_[victim / model.experts];
        ++owner.evictions;
        owner.wasted += pool.evicted_unhit[victim];
    } else {
        ++pool.size;
    }
    pool.insert(key, slot);
    pool.protect(slot);
    return victim;
}

void StepBase::fetch(int call) {
    const int key = view.key(calls.rank[call]);
    calls.victim[call] = bring_in(key, !policy.mutants.no_shield);
    pool.unqueue(key);
    if (!policy.mutants.stale_mass) pool.mass[key] = 0.0;
    stale_answers_ = true;
}

void StepBase::classify_miss(int key) {
    if (pool.was_resident[key] == 0)
        ++counter_->compulsory;
    else if (pool.evicted_unhit[key] != 0)
        ++counter_->collision;
    else
        ++counter_->capacity;
}

void StepBase::count_substituted(double weight) {
    ++counter_->substituted;
    counter_->mass += weight;
    heaviest_ = std::max(heaviest_, weight);
}

void StepBase::count_reswap(int key) {
    counter_->reswaps += pool.t - pool.last_substituted[key] <= kReswapTokens;
    pool.last_substituted[key] = pool.t;
}

/// With a full pool of this layer alone and no group limits K - 1 experts at most are protected, fewer than C.
void StepBase::require_fallback_possible() const {
    if (policy.scope == Scope::layer && !model.has_groups() && pool.full())
        throw std::logic_error("no substitute is left although the pool is full");
}

void StepBase::execute(bool rerouted) {
    if (!rerouted) {
        counter_->kept += model.top_k - substitutes_ - drops_ + rescued_;
    } else {
        for (const int rank : calls.rank) counter_->kept += rank < model.top_k;
    }
    if (options.weights) weigh();
    if (options.kl) counter_->kl += divergence();
}

/// Step 6: the weight of the expert executed for each call, the model's scale included.
void StepBase::weigh() {
    const int k = model.top_k;
    if (policy.weights == WeightConvention::inherit) {
        for (int call = 0; call < k; ++call) {
            const double own = model.normalise ? view.weights()[call] : view.p(call);
            calls.weight[call] = executed(call) < 0 ? 0.0 : own * model.scale;
        }
        return;
    }
    int count = 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (int call = 0; call < k; ++call) {
        if (executed(call) < 0) continue;
        gates_[count] = view.z(executed_rank(call));
        largest = std::max(largest, gates_[count++]);
    }
    // Without normalisation softmax gates are p itself: e^(z - lse).
    const bool after_all = model.gating == Gating::softmax && !model.normalise;
    gate_values(model.gating, after_all ? view.row.lse : largest, gates_.data(), count);
    count = 0;
    for (int call = 0; call < k; ++call) {
        if (executed(call) < 0) continue;
        if (calls.verdict[call] == Verdict::substitute) gates_[count] *= policy.substitute_scale;
        ++count;
    }
    const double sum = model.normalise && count > 0 ? positive_sum(gates_.data(), count) : 1.0;
    count = 0;
    for (int call = 0; call < k; ++call)
        calls.weight[call] = executed(call) < 0 ? 0.0 : gates_[count++] / sum * model.scale;
}

/// KL(executed || router) in nats: executed weights, normalised to sum 1, against p over all E. Undefined (NaN) for
/// sigmoid gates, which are no distribution, and when nothing is executed.
double StepBase::divergence() const {
    double sum = 0.0;
    for (const double weight : calls.weight) sum += weight;
    if (model.gating == Gating::sigmoid || sum <= 0.0) return std::numeric_limits<double>::quiet_NaN();
    double result = 0.0;
    for (int call = 0; call < model.top_k; ++call) {
        const double q = calls.weight[call] / sum;
        if (q < std::numeric_limits<double>::min()) continue;  // q log q vanishes
        result += q * (core_log(q) - (view.z(executed_rank(call)) - view.row.lse));
    }
    return result;
}

void StepBase::update() {
    if (policy.update == Update::requests && !policy.mutants.update_executed) {
        for (int call = 0; call < model.top_k; ++call) {
            if (calls.slot[call] >= 0)
                pool.touch_slot(calls.slot[call]);
            else
                pool.touch(view.key(calls.rank[call]));
        }
    } else {
        for (int call = 0; call < model.top_k; ++call)
            if (executed(call) >= 0) pool.touch(view.base + executed(call));
    }
    if (view.row.next_use != nullptr)  // eviction opt: every request is resident by now
        for (int call = 0; call < model.top_k; ++call)
            pool.slot_next_use[pool.slot_of[view.key(call)]] = view.row.next_use[call];
}

void StepBase::admit() {
    if (policy.admission == Admission::fetched_only) return;
    for (int call = 0; call < model.top_k; ++call) {
        if (calls.verdict[call] != Verdict::substitute) continue;
        const int key = view.key(calls.rank[call]);
        if (pool.queued[key] != 0) continue;
        if (policy.admission == Admission::background) {
            pool.mass[key] += view.weights()[call];
            if (!(pool.mass[key] >= policy.beta)) continue;
            pool.mass[key] = 0.0;
        }
        pool.push(key, pool.t + (policy.admission == Admission::background ? policy.delay : 1));
    }
}

std::unique_ptr<StepBase> make_step(const Model& model, const Policy& policy, Pool& pool, StepOptions options) {
    return std::visit(
        [&]<class Rule>(const Rule& rule) -> std::unique_ptr<StepBase> {
            return std::make_unique<Step<Rule>>(model, policy, rule, pool, options);
        },
        policy.rule);
}

}  // namespace expertmiss
