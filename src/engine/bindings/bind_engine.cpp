// expertmiss._engine: the session as Python sees it; expertmiss/engine/session.py documents it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "counts.hpp"
#include "error.hpp"
#include "parse.hpp"
#include "session.hpp"
#include "vocabulary.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace expertmiss::engine {
namespace {

SessionOptions parse_options(const nb::dict& dict) {
    DictReader reader(dict, "engine options");
    SessionOptions options;
    options.store = reader.text("store", options.store);
    options.device = reader.text("device", options.device);
    options.cache_type = reader.text("cache_type", options.cache_type);
    options.context = reader.integer("context", options.context);
    options.batch = reader.integer("batch", options.batch);
    options.threads = reader.integer("threads", options.threads);
    options.io_threads = reader.integer("io_threads", options.io_threads);
    options.flash_attention = reader.boolean("flash_attention", options.flash_attention);
    options.repack = reader.boolean("repack", options.repack);
    reader.finish();
    if (options.context < 1 || options.batch < 1 || options.threads < 1 || options.io_threads < 1)
        reader.refuse("context, batch, threads and io_threads must be at least 1");
    return options;
}

nb::dict router_to_dict(const Session& session) {
    const RouterGraph& graph = session.router();
    const Model& model = graph.model;
    const bool sigmoid = model.gating == Gating::sigmoid;
    nb::dict dict;
    dict["layers"] = model.layers;
    dict["experts"] = model.experts;
    dict["top_k"] = model.top_k;
    dict["gating"] = sigmoid ? "sigmoid" : graph.after_topk ? "softmax_after_topk" : "softmax";
    dict["normalise"] = model.normalise;
    dict["scale"] = model.scale;
    if (model.has_bias()) {
        nb::list rows;
        for (int layer = 0; layer < model.layers; ++layer)
            rows.append(std::vector<double>(model.layer_bias(layer), model.layer_bias(layer) + model.experts));
        dict["bias"] = rows;
    }
    nb::list blocks;
    for (const RoutedLayer& layer : graph.layers) blocks.append(layer.block);
    dict["layer_indices"] = blocks;
    return dict;
}

void start(Session& session, const nb::dict& policy, int capacity, const std::optional<Input<std::int64_t, 2>>& counts,
           std::int64_t seed, bool log, bool keep, bool check, const std::string& landing) {
    if (landing != "scheduled" && landing != "timed")
        throw EngineError("landing '" + landing + "': scheduled or timed");
    Policy parsed = parse_policy(policy, seed, std::nullopt);
    const Model& model = session.router().model;
    std::vector<std::vector<int>> orders;
    if (capacity >= model.top_k && capacity <= model.experts)  // otherwise start() refuses it
        orders = initial_orders_of(model, parsed, capacity, counts, seed);
    nb::gil_scoped_release release;
    session.start(std::move(parsed), capacity, std::move(orders),
                  {.log = log, .keep = keep, .check = check, .timed = landing == "timed"});
}

/// The logits as an array of its own: llama.cpp overwrites them at the next token.
nb::object logits_to_numpy(const Session& session, const float* logits) {
    return to_numpy(std::vector<float>(logits, logits + session.vocabulary()));
}

template <class Call>
nb::object with_logits(Session& session, const Call& call) {
    const float* logits = nullptr;
    {
        nb::gil_scoped_release release;
        logits = call();
    }
    return logits_to_numpy(session, logits);
}

nb::dict take_kept(Session& session) {
    Kept& kept = session.decider().kept;
    const Model& model = session.router().model;
    const auto layers = static_cast<std::size_t>(model.layers), experts = static_cast<std::size_t>(model.experts),
               top_k = static_cast<std::size_t>(model.top_k);
    const std::size_t tokens = kept.ids.size() / layers / top_k;
    nb::dict dict;
    dict["logits"] = to_numpy(std::move(kept.logits), {tokens, layers, experts});
    dict["ids"] = to_numpy(std::move(kept.ids), {tokens, layers, top_k});
    dict["weights"] = to_numpy(std::move(kept.weights), {tokens, layers, top_k});
    kept = Kept{};
    return dict;
}

// Name, operation, layer whose ids it reads, layer whose weights it reads (-1 none).
using NodeTuple = std::tuple<std::string, std::string, int, int>;

std::vector<NodeTuple> node_order(const Session& session) {
    std::vector<NodeTuple> nodes;
    for (const RanNode& node : session.node_order())
        nodes.emplace_back(node.name, ggml_op_name(node.op), node.reads, node.weighs);
    return nodes;
}

/// (name, layer) of every stop that the engine would make in this order.
std::vector<std::pair<std::string, int>> stops_in(const Session& session, const std::vector<NodeTuple>& nodes) {
    std::vector<RanNode> order;
    for (const auto& [name, operation, reads, weighs] : nodes) {
        int op = 0;
        while (op < GGML_OP_COUNT && operation != ggml_op_name(static_cast<ggml_op>(op))) ++op;
        order.push_back({name, static_cast<ggml_op>(op), reads, weighs});
    }
    std::vector<std::pair<std::string, int>> stops;
    for (const Stop& stop : plan_stops(session.router(), order)) stops.emplace_back(stop.name, stop.layer);
    return stops;
}

double seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

nb::dict take_times(Session& session) {
    std::vector<TokenTimes>& tokens = session.clock().tokens;
    const auto column = [&](const auto& get) {
        std::vector<decltype(get(tokens[0]))> values;
        values.reserve(tokens.size());
        for (const TokenTimes& token : tokens) values.push_back(get(token));
        return to_numpy(std::move(values));
    };
    const auto part_column = [&](Part part) {
        return column([part](const TokenTimes& token) { return seconds(token.of(part)); });
    };
    nb::dict dict;
    dict["wall"] = column([](const TokenTimes& token) { return seconds(token.wall()); });
    dict["compute"] = part_column(Part::compute);
    dict["waiting"] = part_column(Part::waiting);
    dict["policy"] = part_column(Part::policy);
    dict["background"] = part_column(Part::background);
    dict["fetch_bytes"] = column([](const TokenTimes& token) { return token.fetch_bytes; });
    dict["admission_bytes"] = column([](const TokenTimes& token) { return token.admission_bytes; });
    tokens.clear();
    return dict;
}

nb::dict traffic_to_dict(Session& session) {
    nb::dict dict;
    dict["computing"] = session.computing();
    if (session.stock()) return dict;
    const Traffic& traffic = session.decider().traffic;
    dict["fetches"] = traffic.fetches;
    dict["fills"] = traffic.fills;
    dict["landings"] = traffic.landings;
    dict["ahead"] = traffic.ahead;
    dict["repairs"] = traffic.repairs;
    dict["differences"] = traffic.differences;
    dict["filling"] = traffic.filling;
    const TokenTimes& total = session.clock().total;
    dict["waiting"] = seconds(total.of(Part::waiting));
    dict["policy"] = seconds(total.of(Part::policy));
    dict["background"] = seconds(total.of(Part::background));
    dict["loaded_bytes"] = session.cache().loaded_bytes();
    dict["slot_bytes"] = session.cache().buffer_bytes();
    return dict;
}

nb::dict take_log(Session& session) {
    Stepper& stepper = session.decider().stepper;
    return log_to_dict(std::move(stepper.calls), std::move(stepper.landings));
}

nb::dict meters(Session& session) {
    const Stepper& stepper = session.decider().stepper;
    return counters_to_dict(stepper.counters(), stepper.counters().size(), 0, stepper.model().top_k, false);
}

}  // namespace

NB_MODULE(_engine, m) {
    nb::exception<EngineError>(m, "EngineError");
    nb::class_<Session>(m, "Session")
        .def("__init__",
             [](Session* self, const std::string& path, const nb::dict& options) {
                 SessionOptions parsed = parse_options(options);
                 nb::gil_scoped_release release;
                 new (self) Session(path, std::move(parsed));
             })
        .def_prop_ro("router", &router_to_dict)
        .def_prop_ro("architecture", [](const Session& self) { return self.file().architecture; })
        .def_prop_ro("vocabulary", &Session::vocabulary)
        .def_prop_ro("position", &Session::position)
        .def_prop_ro("stock", &Session::stock)
        .def("start", &start, "policy"_a, "capacity"_a, "counts"_a.noconvert() = nb::none(), "seed"_a = 0,
             "log"_a = false, "keep"_a = false, "check"_a = false, "landing"_a = "scheduled")
        .def("start_stock", &Session::start_stock, nb::call_guard<nb::gil_scoped_release>())
        .def("reset", &Session::reset, "document"_a, nb::call_guard<nb::gil_scoped_release>())
        .def(
            "prefill",
            [](Session& self, const std::vector<int>& tokens) {
                return with_logits(self, [&] { return self.prefill(tokens); });
            },
            "tokens"_a)
        .def(
            "step", [](Session& self, int token) { return with_logits(self, [&] { return self.step(token); }); },
            "token"_a)
        .def(
            "nll",
            [](Session& self, const std::vector<int>& tokens) {
                std::vector<double> losses;
                {
                    nb::gil_scoped_release release;
                    losses = self.nll(tokens);
                }
                return to_numpy(std::move(losses));
            },
            "tokens"_a)
        .def(
            "verify", [](const Session& self) { return self.cache().verify(); },
            nb::call_guard<nb::gil_scoped_release>())
        .def("node_order", &node_order)
        .def("stops_in", &stops_in, "order"_a)
        .def("meters", &meters)
        .def("traffic", &traffic_to_dict)
        .def("take_times", &take_times)
        .def("take_log", &take_log)
        .def("take_kept", &take_kept)
        .def(
            "residents", [](Session& self, int layer) { return self.decider().stepper.residents(layer); }, "layer"_a)
        .def(
            "tokenize",
            [](const Session& self, const std::string& text, bool special) {
                return tokenize(self.model(), text, special);
            },
            "text"_a, "special"_a = true)
        .def(
            "piece",
            [](const Session& self, int token) {
                const std::string bytes = piece(self.model(), token);
                return nb::bytes(bytes.data(), bytes.size());
            },
            "token"_a)
        .def(
            "ends_text", [](const Session& self, int token) { return ends_text(self.model(), token); }, "token"_a)
        .def(
            "chat_prompt",
            [](const Session& self, const std::vector<std::pair<std::string, std::string>>& turns) {
                return chat_prompt(self.model(), turns);
            },
            "turns"_a);
    m.def("serve_device", &serve_device, "endpoint"_a, "threads"_a = 1, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace expertmiss::engine
