#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "counts.hpp"
#include "parse.hpp"
#include "simulate.hpp"

namespace expertmiss {
namespace {

using namespace nb::literals;

/// Pointers into the arrays of a trace; `kept` holds the arrays for as long as they are used.
Trace take_trace(nb::sequence layers, const Input<std::int32_t, 1>& document, const Model& model,
                 std::vector<nb::object>& kept) {
    Trace trace;
    trace.document = document.data();
    trace.tokens = static_cast<std::int64_t>(document.shape(0));
    trace.depth = 0;
    if (nb::len(layers) != static_cast<std::size_t>(model.layers))
        throw std::invalid_argument("the trace has " + std::to_string(nb::len(layers)) + " layers, its metadata says " +
                                    std::to_string(model.layers));
    for (std::size_t index = 0; index < nb::len(layers); ++index) {
        const nb::object layer = layers[index];
        const std::string name = "layer " + std::to_string(index);
        if (nb::len(layer) != 4) throw std::invalid_argument(name + " must be (ids, z, lse, zmin)");
        const auto ids = take_array<std::uint16_t, 2>(layer[0], name + ": ids", "uint16");
        const auto z = take_array<float, 2>(layer[1], name + ": z", "float32");
        const auto lse = take_array<double, 1>(layer[2], name + ": lse", "float64");
        const auto zmin = take_array<float, 1>(layer[3], name + ": zmin", "float32");
        const auto tokens = document.shape(0);
        if (ids.shape(0) != tokens || z.shape(0) != tokens || lse.shape(0) != tokens || zmin.shape(0) != tokens)
            throw std::invalid_argument(name + ": every array must have one row per token (" + std::to_string(tokens) +
                                        ")");
        if (index == 0) trace.depth = static_cast<int>(ids.shape(1));
        if (static_cast<int>(ids.shape(1)) != trace.depth || static_cast<int>(z.shape(1)) != trace.depth)
            throw std::invalid_argument(name + ": ids and z must have the same depth M in every layer");
        trace.layers.push_back({ids.data(), z.data(), lse.data(), zmin.data()});
        kept.push_back(layer);
    }
    return trace;
}

nb::dict run(nb::sequence layers, const Input<std::int32_t, 1>& document, nb::dict meta, nb::dict policy_dict,
             int capacity, std::optional<Input<std::int64_t, 2>> counts, std::int64_t seed, bool log, bool kl,
             int threads, bool check, const std::optional<std::string>& mutant) {
    const Model model = parse_model(meta);
    const Policy policy = parse_policy(policy_dict, seed, mutant);
    std::vector<nb::object> kept;
    const Trace trace = take_trace(layers, document, model, kept);
    check_policy(policy, model, capacity, trace.depth);
    const auto orders = initial_orders_of(model, policy, capacity, counts, seed);
    Simulation result;
    {
        nb::gil_scoped_release release;
        result = simulate(trace, model, policy, capacity, orders,
                          {.log = log, .kl = kl, .check = check, .threads = threads});
    }
    std::vector<std::int32_t> documents;
    for (const Segment& segment : result.segments) documents.push_back(segment.document);
    nb::dict answer;
    answer["meters"] =
        counters_to_dict(result.counters, documents.size(), static_cast<std::size_t>(model.layers), model.top_k, kl);
    answer["documents"] = to_numpy(std::move(documents));
    answer["initial_order"] = order_to_numpy(orders, model.experts);
    answer["log"] = log ? nb::object(log_to_dict(std::move(result.calls), std::move(result.landings))) : nb::none();
    return answer;
}

}  // namespace

void bind_simulate(nb::module_& m) {
    m.def("simulate", &run, "layers"_a, "document"_a.noconvert(), "meta"_a, "policy"_a, "capacity"_a,
          "counts"_a.noconvert() = nb::none(), "seed"_a = 0, "log"_a = false, nb::kw_only(), "kl"_a = true,
          "threads"_a = 1, "check"_a = false, "mutant"_a = nb::none());
    m.def(
        "initial_order",
        [](nb::dict meta, nb::dict policy, int capacity, std::optional<Input<std::int64_t, 2>> counts,
           std::int64_t seed) {
            const Model model = parse_model(meta);
            const Policy parsed = parse_policy(policy, seed, {});
            check_policy(parsed, model, capacity, model.candidates());
            return order_to_numpy(initial_orders_of(model, parsed, capacity, counts, seed), model.experts);
        },
        "meta"_a, "policy"_a, "capacity"_a, "counts"_a.noconvert() = nb::none(), "seed"_a = 0);
}

}  // namespace expertmiss
