#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "counts.hpp"
#include "explain.hpp"
#include "parse.hpp"
#include "stepper.hpp"

namespace expertmiss {
namespace {

using namespace nb::literals;

/// A Stepper and what its answers need to know.
struct PyStepper {
    PyStepper(nb::dict meta, nb::dict policy_dict, int capacity, std::optional<Input<std::int64_t, 2>> counts,
              std::int64_t seed, bool log_, bool kl_, bool check, const std::optional<std::string>& mutant)
        : PyStepper(parse_model(meta), parse_policy(policy_dict, seed, mutant), capacity, counts, seed, log_, kl_,
                    check) {}

    PyStepper(const Model& model, const Policy& policy, int capacity,
              const std::optional<Input<std::int64_t, 2>>& counts, std::int64_t seed, bool log_, bool kl_, bool check)
        : log(log_),
          kl(kl_),
          core((check_policy(policy, model, capacity, model.candidates()), model), policy, capacity,
               initial_orders_of(model, policy, capacity, counts, seed), log_, kl_, check) {}

    const bool log, kl;
    Stepper core;
};

void require_width(const Stepper& stepper, std::size_t width) {
    const auto experts = static_cast<std::size_t>(stepper.model().experts);
    if (width != experts)
        throw std::invalid_argument("logits must have E = " + std::to_string(experts) + " columns, not " +
                                    std::to_string(width));
}

/// Ids and weights of the executed experts, in order of execution.
void collect(const StepBase& step, std::uint16_t* ids, double* weights, int& count) {
    count = 0;
    for (int call = 0; call < step.model.top_k; ++call) {
        if (step.executed(call) < 0) continue;
        ids[count] = static_cast<std::uint16_t>(step.executed(call));
        weights[count++] = step.calls.weight[call];
    }
}

template <class Logit>
nb::tuple step(PyStepper& self, int layer, const Input<Logit, 1>& z, const std::optional<std::vector<int>>& arrived) {
    require_width(self.core, z.shape(0));
    const StepBase& done = self.core.step(layer, z.data(), false, arrived ? &*arrived : nullptr);
    const auto width = static_cast<std::size_t>(self.core.model().top_k);
    std::vector<std::uint16_t> ids(width);
    std::vector<double> weights(width);
    int count = 0;
    collect(done, ids.data(), weights.data(), count);
    ids.resize(static_cast<std::size_t>(count));
    weights.resize(static_cast<std::size_t>(count));
    return nb::make_tuple(to_numpy(std::move(ids)), to_numpy(std::move(weights)));
}

template <class Logit>
nb::tuple steps(PyStepper& self, int layer, const Input<Logit, 2>& z) {
    require_width(self.core, z.shape(1));
    if (self.core.policy().scope == Scope::global)
        throw std::invalid_argument(
            "scope global shares one pool between layers, so its tokens run layer by layer with step()");
    const std::size_t tokens = z.shape(0), width = static_cast<std::size_t>(self.core.model().top_k);
    std::vector<std::uint16_t> ids(tokens * width);
    std::vector<double> weights(tokens * width);
    std::vector<int> counts(tokens);
    {
        nb::gil_scoped_release release;
        for (std::size_t token = 0; token < tokens; ++token) {
            const StepBase& done = self.core.step(layer, z.data() + token * z.shape(1));
            collect(done, ids.data() + token * width, weights.data() + token * width, counts[token]);
        }
    }
    return nb::make_tuple(to_numpy(std::move(ids), {tokens, width}), to_numpy(std::move(weights), {tokens, width}),
                          to_numpy(std::move(counts)));
}

template <class Logit>
nb::dict explain_step(PyStepper& self, int layer, const Input<Logit, 1>& z) {
    require_width(self.core, z.shape(0));
    self.core.require_layer(layer);
    return explain(self.core, layer, [&]() -> const StepBase& { return self.core.step(layer, z.data(), true); });
}

nb::dict take_log(PyStepper& self) {
    if (!self.log) throw std::invalid_argument("this Stepper keeps no log: make it with log=True");
    return log_to_dict(std::move(self.core.calls), std::move(self.core.landings));
}

}  // namespace

void bind_stepper(nb::module_& m) {
    nb::class_<PyStepper>(m, "Stepper")
        .def(nb::init<nb::dict, nb::dict, int, std::optional<Input<std::int64_t, 2>>, std::int64_t, bool, bool, bool,
                      const std::optional<std::string>&>(),
             "meta"_a, "policy"_a, "capacity"_a, "counts"_a.noconvert() = nb::none(), "seed"_a = 0, nb::kw_only(),
             "log"_a = false, "kl"_a = true, "check"_a = false, "mutant"_a = nb::none())
        .def(
            "reset", [](PyStepper& self, int document) { self.core.reset(document); }, "document"_a)
        .def("step", &step<float>, "layer"_a, "z"_a.noconvert(), "arrived"_a = nb::none())
        .def("step", &step<double>, "layer"_a, "z"_a.noconvert(), "arrived"_a = nb::none())
        .def("steps", &steps<float>, "layer"_a, "z"_a.noconvert())
        .def("steps", &steps<double>, "layer"_a, "z"_a.noconvert())
        .def("explain", &explain_step<float>, "layer"_a, "z"_a.noconvert())
        .def("explain", &explain_step<double>, "layer"_a, "z"_a.noconvert())
        .def(
            "residents", [](const PyStepper& self, int layer) { return ids_to_numpy(self.core.residents(layer)); },
            "layer"_a)
        .def("meters",
             [](const PyStepper& self) {
                 return counters_to_dict(self.core.counters(), self.core.counters().size(), 0, self.core.model().top_k,
                                         self.kl);
             })
        .def("take_log", &take_log)
        .def("snapshot",
             [](const PyStepper& self) {
                 const std::string bytes = self.core.snapshot();
                 return nb::bytes(bytes.data(), bytes.size());
             })
        .def(
            "restore",
            [](PyStepper& self, const nb::bytes& bytes) { self.core.restore({bytes.c_str(), bytes.size()}); },
            "snapshot"_a)
        .def_prop_ro(
            "initial_order",
            [](const PyStepper& self) { return order_to_numpy(self.core.orders(), self.core.model().experts); })
        .def_prop_ro("document", [](const PyStepper& self) { return self.core.document(); });
}

}  // namespace expertmiss
