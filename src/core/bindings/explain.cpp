#include "explain.hpp"

#include "bind.hpp"

namespace expertmiss {
namespace {

/// One value per element of a range, as an array.
template <class T, class Get>
nb::object tabulate(int count, Get get) {
    std::vector<T> values;
    for (int index = 0; index < count; ++index) values.push_back(static_cast<T>(get(index)));
    return to_numpy(std::move(values));
}

}  // namespace

nb::object ids_to_numpy(const std::vector<int>& ids) {
    return tabulate<std::uint16_t>(static_cast<int>(ids.size()), [&](int index) { return ids[index]; });
}

nb::dict explain(const Stepper& stepper, int layer, const std::function<const StepBase&()>& run) {
    const nb::object residents_before = ids_to_numpy(stepper.residents(layer));
    const StepBase& step = run();
    const StepView& view = step.view;
    const Calls& calls = step.calls;
    const int k = view.top_k, depth = view.row.depth, experts = view.model.experts;
    const double* bias = view.model.layer_bias(layer);

    nb::dict told;
    told["document"] = stepper.document();
    told["t"] = step.pool.t;
    told["layer"] = layer;
    told["order"] = tabulate<std::uint16_t>(depth, [&](int rank) { return view.expert(rank); });
    told["z"] = tabulate<double>(depth, [&](int rank) { return view.z(rank); });
    told["p"] = tabulate<double>(depth, [&](int rank) { return view.p(rank); });
    told["s"] = tabulate<double>(
        depth, [&](int rank) { return view.p(rank) + (bias != nullptr ? bias[view.expert(rank)] : 0.0); });
    told["w"] = tabulate<double>(depth, [&](int rank) { return view.weight(rank); });
    told["residents_before"] = residents_before;
    nb::list landed;
    for (const Landed& one : step.landed) landed.append(nb::make_tuple(one.key % experts, one.victim));
    told["landed"] = landed;
    told["requested"] = tabulate<std::uint16_t>(k, [&](int call) { return view.expert(calls.rank[call]); });
    told["ranks"] = tabulate<std::int16_t>(k, [&](int call) { return calls.rank[call]; });
    nb::list verdicts;
    for (const Verdict verdict : calls.verdict) verdicts.append(kVerdictNames[static_cast<int>(verdict)]);
    told["verdicts"] = verdicts;
    told["substitutes"] = tabulate<std::int32_t>(k, [&](int call) { return calls.substitute[call]; });
    told["victims"] = tabulate<std::int32_t>(k, [&](int call) { return calls.victim[call]; });
    std::vector<std::uint16_t> executed;
    std::vector<double> weights;
    for (int call = 0; call < k; ++call) {
        if (step.executed(call) < 0) continue;
        executed.push_back(static_cast<std::uint16_t>(step.executed(call)));
        weights.push_back(calls.weight[call]);
    }
    told["executed"] = to_numpy(std::move(executed));
    told["weights"] = to_numpy(std::move(weights));
    told["A"] = tabulate<double>(experts, [&](int expert) { return step.pool.mass[view.base + expert]; });
    nb::list queue;
    const int first_layer = layer - view.layer;
    for (int index = 0; index < step.pool.queue_size; ++index) {
        const QueueEntry& entry = step.pool.queue_at(index);
        queue.append(nb::make_tuple(first_layer + entry.key / experts, entry.key % experts, entry.due));
    }
    told["queue"] = queue;
    told["residents_after"] = ids_to_numpy(stepper.residents(layer));
    return told;
}

}  // namespace expertmiss
