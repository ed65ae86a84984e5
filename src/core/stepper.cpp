#include "stepper.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "check.hpp"
#include "math.hpp"

namespace expertmiss {
namespace {

constexpr int kMoreRanks = 16;

template <class... Ones, class Variant>
bool is_one_of(const Variant& value) {
    return (std::holds_alternative<Ones>(value) || ...);
}

/// What a step looks for below the ranks that it always looks at. A rule or chooser that is not known here gets the
/// whole row.
RankSearch search_of(const Model& model, const Policy& policy) {
    const bool substitutes = is_one_of<SubstituteAll, FirstChoice, Threshold, Cumulative>(policy.rule);
    const bool any_order = is_one_of<Random, MatchedRandom>(policy.chooser);  // they list all their candidates
    if (is_one_of<FetchAll, DropCold, MaxRank>(policy.rule) || (substitutes && any_order)) return RankSearch::nothing;
    if (substitutes && is_one_of<RouterRank>(policy.chooser)) return RankSearch::residents;
    if (is_one_of<CachePrior>(policy.rule)) return RankSearch::favoured;
    const auto* margin = std::get_if<ScoreMargin>(&policy.rule);
    const bool known = margin != nullptr && model.gating == Gating::softmax && margin->alpha < 1.0;
    return known && (any_order || is_one_of<RouterRank>(policy.chooser)) ? RankSearch::margin : RankSearch::whole_row;
}

/// How many ranks every step looks at.
int least_ranks(const Model& model, const Policy& policy) {
    if (const auto* limited = std::get_if<MaxRank>(&policy.rule)) return std::min(limited->limit, model.candidates());
    return std::min(model.top_k + is_one_of<ScoreMargin>(policy.rule), model.candidates());
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
      search_(search_of(model_, policy_)),
      least_ranks_(search_ == RankSearch::whole_row ? model_.candidates() : least_ranks(model_, policy_)),
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

/// Puts as many ranks in order as the step may look at, given the residents before it.
void Stepper::extend_row(const Row& row, const Pool& pool, int base) {
    const int k = model_.top_k,
              pending = pool.queue_size;  // a landing changes at most two residents of the ranks seen
    const auto resident = [&](int rank) { return pool.resident(base + row.ids[rank]); };
    int residents = 0, others = 0, looked = 0, always = 0;
    double lowest = 0.0;
    if (search_ == RankSearch::residents) {
        // Each of at most K misses takes a resident or evicts one.
        for (; looked < k; ++looked) others += !resident(looked);
        if (others == 0 && pending == 0) return;
    } else if (search_ == RankSearch::favoured) {
        always = std::get<CachePrior>(policy_.rule).always;
    } else {
        if (row.depth == k) return;
        // Below this e^(z - z_(K+1)) is under 1 - alpha, whatever the rounding.
        lowest = core_log(1.0 - std::get<ScoreMargin>(policy_.rule).alpha) - 1e-9;
    }
    for (int end = least_ranks_; looked < row.depth; end += kMoreRanks) {
        ranker_.extend(std::min(end, row.depth));
        for (; looked < std::min(ranker_.ordered(), row.depth); ++looked)
            ++(looked < always || resident(looked) ? residents : others);
        const bool enough = search_ == RankSearch::margin      ? row.z64[looked - 1] - row.z64[k] < lowest
                            : search_ == RankSearch::residents ? residents >= k + pending
                                                               : std::min(residents, others) > k + pending;
        if (enough) return;
    }
}

void Stepper::require_queued(const Pool& pool, const std::vector<int>& arrived) const {
    if (global_)
        throw std::invalid_argument("scope global lands admissions at their due token; give no experts that arrived");
    // What lands does not evict what landed with it, so no more than fit into the pool.
    const int cap = std::min(policy_.upload_cap.value_or(pool.capacity), pool.capacity);
    if (static_cast<int>(arrived.size()) > cap)
        throw std::invalid_argument(std::to_string(arrived.size()) + " experts cannot land at once, at most " +
                                    std::to_string(cap) + " may (upload_cap, resident experts)");
    for (auto at = arrived.begin(); at != arrived.end(); ++at) {
        const bool known = *at >= 0 && *at < model_.experts && pool.queued[*at] != 0;
        if (!known || std::find(arrived.begin(), at, *at) != at)
            throw std::invalid_argument("expert " + std::to_string(*at) + " cannot land, it is not in the queue");
    }
}

template <class Logit>
const StepBase& Stepper::step(int layer, const Logit* z, bool whole_row, const std::vector<int>* arrived) {
    require_layer(layer);
    if (global_ && layer != next_layer_)
        throw std::invalid_argument("scope global steps the layers in order: expected layer " +
                                    std::to_string(next_layer_) + ", got " + std::to_string(layer));
    StepBase& step = *steps_[global_ ? 0 : layer];
    if (arrived != nullptr) require_queued(step.pool, *arrived);
    step.arrived = arrived;
    const int in_pool = layer_in_pool(layer);
    const Row row = ranker_.rank(z, layer, whole_row ? model_.candidates() : least_ranks_, whole_row || needs_lse_);
    if (!whole_row && search_ > RankSearch::whole_row) extend_row(row, step.pool, in_pool * model_.experts);
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

template const StepBase& Stepper::step<float>(int, const float*, bool, const std::vector<int>*);
template const StepBase& Stepper::step<double>(int, const double*, bool, const std::vector<int>*);

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
