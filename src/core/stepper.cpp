#include "stepper.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "check.hpp"

namespace expertmiss {
namespace {

constexpr int kMoreRanks = 16;

template <class... Ones, class Variant>
bool is_one_of(const Variant& value) {
    return (std::holds_alternative<Ones>(value) || ...);
}

/// Whether substitutes are the first residents in rank order: then a step looks no further than to as many as it may
/// need.
bool takes_first_residents(const Policy& policy) {
    return is_one_of<SubstituteAll, FirstChoice, Threshold, Cumulative>(policy.rule) &&
           is_one_of<RouterRank>(policy.chooser);
}

/// How many ranks must be in order for every step, apart from a search for residents: all, unless the rule is known to
/// look no further, and the chooser to take its candidates in any order.
int least_ranks(const Model& model, const Policy& policy) {
    if (const auto* limited = std::get_if<MaxRank>(&policy.rule)) return std::min(limited->limit, model.candidates());
    const bool looks_at_s = is_one_of<FetchAll, DropCold>(policy.rule) || takes_first_residents(policy) ||
                            (is_one_of<SubstituteAll, FirstChoice, Threshold, Cumulative>(policy.rule) &&
                             is_one_of<Random, MatchedRandom>(policy.chooser));
    return looks_at_s ? model.top_k : model.candidates();
}

}  // namespace

Stepper::Stepper(Model model, Policy policy, int capacity, std::vector<std::vector<int>> orders, bool log, bool kl,
                 bool check)
    : model_(std::move(model)),
      policy_(std::move(policy)),
      capacity_(capacity),
      orders_(std::move(orders)),
      log_(log),
      check_(check || (kAlwaysCheck && !policy_.mutants.any())),
      global_(policy_.scope == Scope::global),
      needs_lse_(kl || (model_.gating == Gating::softmax && !model_.normalise)),
      by_residents_(takes_first_residents(policy_)),
      least_ranks_(least_ranks(model_, policy_)),
      ranker_(model_, model_.candidates(), policy_.mutants.tie_higher_id),
      counters_(model_.layers) {
    if (std::holds_alternative<Opt>(policy_.eviction))
        throw std::invalid_argument("policy '" + policy_.name +
                                    "': eviction opt needs recorded future requests, which a running model has not");
    const int layers_per_pool = global_ ? model_.layers : 1;
    for (const auto& order : orders_) {
        pools_.push_back(
            std::make_unique<Pool>(layers_per_pool, model_.experts, capacity, counting_of(policy_.eviction)));
        pools_.back()->reset(order);
        steps_.push_back(make_step(model_, policy_, *pools_.back(), {.weights = true, .kl = kl}));
    }
}

void Stepper::require_layer(int layer) const {
    if (layer < 0 || layer >= model_.layers)
        throw std::invalid_argument("layer " + std::to_string(layer) + " is not between 0 and " +
                                    std::to_string(model_.layers - 1));
}

void Stepper::reset(int document) {
    document_ = document;
    std::fill(counters_.begin(), counters_.end(), Counters{});
    if (global_ && next_layer_ != 0) {
        if (policy_.state == Carry::carry)
            throw std::invalid_argument("a document may not end between the layers of a token (next layer: " +
                                        std::to_string(next_layer_) + ")");
        next_layer_ = 0;
    }
    if (policy_.state == Carry::carry) return;  // the constructor has put the pools into the initial state
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) pools_[pool]->reset(orders_[pool]);
}

/// Puts as many ranks in order as hold a substitute for every miss. Among them at most K residents are taken or lost to
/// fetches (one each for a miss), and one to every landing.
void Stepper::extend_row(const Row& row, const Pool& pool, int base) {
    int found = 0, looked = model_.top_k;
    bool all_hit = pool.queue_size == 0;
    for (int rank = 0; all_hit && rank < model_.top_k; ++rank) all_hit = pool.resident(base + row.ids[rank]);
    if (all_hit) return;
    const int needed = model_.top_k + pool.queue_size;
    while (looked < row.depth) {
        ranker_.extend(std::min(looked + kMoreRanks, row.depth));
        for (; looked < std::min(ranker_.ordered(), row.depth); ++looked)
            found += pool.resident(base + row.ids[looked]);
        if (found >= needed) return;
    }
}

template <class Logit>
const StepBase& Stepper::step(int layer, const Logit* z, bool whole_row) {
    require_layer(layer);
    if (global_ && layer != next_layer_)
        throw std::invalid_argument("scope global steps the layers in order: expected layer " +
                                    std::to_string(next_layer_) + ", got " + std::to_string(layer));
    StepBase& step = *steps_[global_ ? 0 : layer];
    const int in_pool = layer_in_pool(layer);
    const Row row = ranker_.rank(z, layer, whole_row ? model_.candidates() : least_ranks_, whole_row || needs_lse_);
    if (by_residents_) extend_row(row, step.pool, in_pool * model_.experts);
    step.run(document_, layer, in_pool, row, counters_.data() + (layer - in_pool));
    if (global_) next_layer_ = (layer + 1) % model_.layers;
    if (check_) check_step(step, document_, layer);
    if (log_) {
        const std::size_t at = calls.size();
        calls.resize(at + static_cast<std::size_t>(model_.top_k));
        calls.write(at, document_, layer, step);
        landings.append(document_, layer - in_pool, step.pool.t, step);
    }
    return step;
}

template const StepBase& Stepper::step<float>(int, const float*, bool);
template const StepBase& Stepper::step<double>(int, const double*, bool);

std::vector<int> Stepper::residents(int layer) const {
    require_layer(layer);
    const Pool& pool = pool_of(layer);
    std::vector<int> ids;
    for (int expert = 0; expert < model_.experts; ++expert)
        if (pool.resident(layer_in_pool(layer) * model_.experts + expert)) ids.push_back(expert);
    return ids;
}

std::string Stepper::snapshot() const {
    std::string bytes = "expertmiss state 1\n";
    const int position[2] = {document_, next_layer_};
    bytes.append(reinterpret_cast<const char*>(position), sizeof position);
    for (const auto& pool : pools_) save(*pool, bytes);
    return bytes;
}

void Stepper::restore(const std::string& bytes) {
    const std::string magic = "expertmiss state 1\n";
    int position[2];
    std::size_t offset = magic.size() + sizeof position;
    if (bytes.size() < offset || bytes.compare(0, magic.size(), magic) != 0)
        throw std::invalid_argument("snapshot: not one of this program's, or of another version");
    std::memcpy(position, bytes.data() + magic.size(), sizeof position);
    std::vector<Pool> loaded;  // copies, so that a bad snapshot changes nothing
    for (const auto& pool : pools_) {
        loaded.push_back(*pool);
        load(loaded.back(), bytes, offset);
        if (!consistent(loaded.back())) throw std::invalid_argument("snapshot: damaged");
    }
    if (offset != bytes.size() || position[1] < 0 || position[1] >= model_.layers)
        throw std::invalid_argument("snapshot: damaged");
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) *pools_[pool] = loaded[pool];
    document_ = position[0];
    next_layer_ = position[1];
}

}  // namespace expertmiss
