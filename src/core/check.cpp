#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

namespace expertmiss {
namespace {

/// Empty, or what is violated.
std::string violation(const StepBase& step) {
    const int k = step.model.top_k;
    const Calls& calls = step.calls;
    const StepView& view = step.view;
    if (step.pool.size > step.pool.capacity) return "more residents than the capacity";
    if (!consistent(step.pool)) return "slots, keys and queue disagree";

    std::set<int> executed, requested;
    int count = 0;
    double sum = 0.0;
    for (int call = 0; call < k; ++call) {
        if (call > 0 && calls.rank[call] <= calls.rank[call - 1]) return "X is not in rank order";
        requested.insert(view.key(calls.rank[call]));
        const int expert = step.executed(call);
        if (expert < 0) continue;
        ++count;
        sum += calls.weight[call];
        executed.insert(expert);
        if (!step.pool.resident(view.base + expert)) return "an executed expert is not resident";
    }
    if (static_cast<int>(executed.size()) != count) return "an expert is executed twice";
    for (int rank = 0; rank < k; ++rank)
        if (requested.count(view.key(rank)) == 0 && step.pool.resident(view.key(rank)))
            return "a resident of S is missing from X";
    for (int call = 0; call < k; ++call)
        if (calls.verdict[call] == Verdict::substitute && step.pool.resident(view.key(calls.rank[call])))
            return "a substituted expert is resident";

    if (step.options.weights && count > 0 && step.model.normalise) {
        const double whole = sum / step.model.scale;
        const bool inherit = step.policy.weights == WeightConvention::inherit;
        if (inherit ? whole > 1.0 + 1e-12 : std::abs(whole - 1.0) > 1e-12) return "executed weights have the wrong sum";
    }
    return "";
}

}  // namespace

bool consistent(const Pool& pool) {
    const int keys = static_cast<int>(pool.slot_of.size());
    if (pool.t < -1 || pool.size < 0 || pool.size > pool.capacity) return false;
    for (int slot = 0; slot < pool.size; ++slot) {
        const int key = pool.slot_key[slot];
        if (key < 0 || key >= keys || pool.slot_of[key] != slot ||
            (pool.slot_order[slot] & Pool::kEnteredMask) >= pool.entered)
            return false;
    }
    if (std::count_if(pool.slot_of.begin(), pool.slot_of.end(), [](int slot) { return slot != -1; }) != pool.size)
        return false;
    std::set<int> queued;
    for (int i = 0; i < pool.queue_size; ++i) {
        const int key = pool.queue_at(i).key;
        if (key < 0 || key >= keys || pool.resident(key) || pool.queued[key] == 0) return false;
        queued.insert(key);
    }
    const auto marked =
        static_cast<long>(pool.queued.size()) - std::count(pool.queued.begin(), pool.queued.end(), std::uint8_t{0});
    return static_cast<int>(queued.size()) == pool.queue_size && marked == pool.queue_size;
}

void check_step(const StepBase& step, int document, int layer) {
    const std::string what = violation(step);
    if (what.empty()) return;
    throw std::logic_error("invariant violated: " + what + " (document " + std::to_string(document) + ", layer " +
                           std::to_string(layer) + ", t " + std::to_string(step.pool.t) + ")");
}

}  // namespace expertmiss
