#include "decide.hpp"

#include <algorithm>
#include <chrono>

#include "error.hpp"

namespace expertmiss::engine {

Decider::Decider(const Model& model, Policy policy, int capacity, std::vector<std::vector<int>> orders,
                 SlotCache& cache, TokenClock& clock_, DecideOptions options)
    : stepper(model, std::move(policy), capacity, std::move(orders), options.log, false, options.check),
      clock(clock_),
      cache_(cache),
      ahead_(cache, clock_),
      options_(options),
      lossless_(std::holds_alternative<FetchAll>(stepper.policy().rule)) {
    if (stepper.policy().scope == Scope::global)
        throw EngineError("policy '" + stepper.policy().name +
                          "': a pool shared by layers is not supported by the engine; use scope layer");
}

Decider::~Decider() {
    try {
        wait();      // reads under way refer to the batch, copies under way to what was read ahead
    } catch (...) {  // a failure that nobody asks for any more
    }
}

void Decider::reset(int document) {
    stepper.reset(document);
    ahead_.clear();
    const auto begin = std::chrono::steady_clock::now();
    for (int layer = 0; layer < stepper.model().layers; ++layer)
        for (const int expert : stepper.residents(layer)) place(layer, expert, traffic.fills, Part::waiting);
    wait();  // a start's residents are there before its first token
    traffic.filling += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Decider::wait() {
    const TokenClock::Span span(clock, Part::waiting);
    cache_.settle();
    ahead_.settled();
    batch_.wait();
}

/// Begins to bring an expert that the core counts as resident into a slot, unless it is in one. `part`: whose time that
/// is.
void Decider::place(int layer, int expert, std::int64_t& counter, Part part) {
    if (cache_.slot_of(layer, expert) >= 0) return;
    // At most as many experts are resident as there are slots, and this one is in none: some slot holds a non-resident.
    const Pool& pool = stepper.pool_of(layer);
    const int slot = cache_.find_slot(layer, [&](int other) { return pool.resident(other); });
    if (slot < 0) throw std::logic_error("no slot is free for a resident expert");
    ++counter;
    const TokenClock::Span span(clock, part);
    if (ahead_.land(layer, expert, slot))
        ++traffic.ahead;
    else
        load(layer, expert, slot, part);
}

void Decider::load(int layer, int expert, int slot, Part part) {
    auto& bytes = part == Part::background ? clock.token.admission_bytes : clock.token.fetch_bytes;
    bytes += static_cast<std::int64_t>(cache_.bytes_of(layer));
    cache_.load(layer, expert, slot, batch_);
}

void Decider::begin(int layer, const float* z) {
    step_ = &stepper.step(layer, z, false, options_.timed ? &arrivals(layer) : nullptr);
    const int top_k = stepper.model().top_k;
    executed_.clear();
    chosen_.clear();
    for (int call = 0; call < top_k; ++call) {
        chosen_.push_back(step_->view.expert(call));
        if (step_->executed(call) >= 0) executed_.push_back(step_->executed(call));
    }
    // What the step waits for comes first.
    for (int call = 0; call < top_k; ++call) {
        const Verdict verdict = step_->calls.verdict[call];
        if (verdict == Verdict::fetch || verdict == Verdict::fallback_fetch)
            place(layer, step_->executed(call), traffic.fetches, Part::waiting);
    }
    admit(layer);
    for (const int expert : executed_) place(layer, expert, traffic.repairs, Part::waiting);
    if (options_.keep) keep(z);
}

/// The layer's queued experts that had been read when this token began, in the queue's order.
const std::vector<int>& Decider::arrivals(int layer) {
    if (layer == 0) ahead_.begin_token();
    const Pool& pool = stepper.pool_of(layer);
    const auto cap =
        static_cast<std::size_t>(std::min(stepper.policy().upload_cap.value_or(pool.capacity), pool.capacity));
    arrived_.clear();
    for (int at = 0; at < pool.queue_size && arrived_.size() < cap; ++at)
        if (ahead_.arrived(layer, pool.queue_at(at).key)) arrived_.push_back(pool.queue_at(at).key);
    return arrived_;
}

/// Copies what has landed in this step into slots, and begins to read what will.
void Decider::admit(int layer) {
    const TokenClock::Span span(clock, Part::background);
    for (const Landed& landed : step_->landed) {
        if (step_->pool.resident(landed.key))
            place(layer, landed.key, traffic.landings, Part::background);
        else
            ahead_.drop(layer, landed.key);
    }
    for (int at = 0; at < step_->pool.queue_size; ++at) ahead_.want(layer, step_->pool.queue_at(at).key);
}

void Decider::keep(const float* z) {
    const int top_k = stepper.model().top_k;
    kept.logits.insert(kept.logits.end(), z, z + stepper.model().experts);
    int count = 0;
    for (int call = 0; call < top_k; ++call) {
        if (step_->executed(call) < 0) continue;
        kept.ids.push_back(static_cast<std::uint16_t>(step_->executed(call)));
        kept.weights.push_back(step_->calls.weight[call]);
        ++count;
    }
    kept.ids.resize(kept.ids.size() + static_cast<std::size_t>(top_k - count));
    kept.weights.resize(kept.weights.size() + static_cast<std::size_t>(top_k - count));
}

bool Decider::set_differs(const std::vector<std::int32_t>& ids, const std::vector<int>& others) const {
    if (ids.size() != others.size()) return true;
    return std::any_of(ids.begin(), ids.end(),
                       [&](int id) { return std::find(others.begin(), others.end(), id) == others.end(); });
}

bool Decider::finish(int layer, std::vector<std::int32_t>& ids, std::vector<float>& weights) {
    const bool tied = set_differs(ids, chosen_);
    traffic.differences += tied;
    if (tied) wait();  // the slots chosen below must not have reads of their own under way
    bool replace = false;
    if (lossless_) {
        // Lossless means the graph's own choice, even where a tie after rounding makes it another than the core's.
        for (const std::int32_t id : ids) {
            if (cache_.slot_of(layer, id) >= 0) continue;
            const auto needed = [&](int other) { return std::find(ids.begin(), ids.end(), other) != ids.end(); };
            load(layer, id, cache_.find_slot(layer, needed), Part::waiting);
            ++traffic.repairs;
        }
    } else if (set_differs(ids, executed_)) {
        // The executed experts take the places in order; places left over by dropped calls repeat one with weight 0.
        replace = true;
        std::size_t place = 0;
        for (int call = 0; call < stepper.model().top_k; ++call) {
            if (step_->executed(call) < 0) continue;
            ids[place] = step_->executed(call);
            weights[place++] = static_cast<float>(step_->calls.weight[call]);
        }
        const int spare = executed_.empty() ? cache_.expert_in(layer, 0) : executed_[0];
        for (; place < ids.size(); ++place) {
            ids[place] = spare;
            weights[place] = 0.0f;
        }
    }
    wait();
    for (std::int32_t& id : ids) id = id < 0 ? 0 : cache_.slot_of(layer, id);  // an empty slot holds zeros
    return replace;
}

}  // namespace expertmiss::engine
