#include "hook.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "error.hpp"
#include "ggml-backend.h"

namespace expertmiss::engine {
namespace {

/// Whether the node runs on slots, so that its ids must have been replaced.
bool runs_on_slots(const ggml_tensor* node) { return node->op == GGML_OP_MUL_MAT_ID || node->op == GGML_OP_ADD_ID; }

}  // namespace

bool Hook::callback(ggml_tensor* node, bool ask, void* self) {
    Hook& hook = *static_cast<Hook*>(self);
    if (ask) return hook.asked(node);
    hook.shown(node);
    return true;  // false would skip the rest of a part of the graph only
}

void Hook::collect() {
    mode_ = Mode::collect;
    nodes.clear();
}

void Hook::learn() {
    mode_ = Mode::learn;
    seen_.clear();
}

void Hook::decide(Decider& decider) {
    mode_ = Mode::decide;
    decider_ = &decider;
    next_ = 0;
    replaced_ = nullptr;
}

void Hook::end() {
    const Mode mode = std::exchange(mode_, Mode::pass);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (mode == Mode::learn) plan();
    if (mode == Mode::decide && next_ != events_.size())
        refuse(events_[next_].layer, "node '" + events_[next_].name + "' did not run in its turn");
}

void Hook::refuse(int layer, const std::string& what) const {
    throw EngineError("layer " + std::to_string(graph_.layers[layer].block) + ": " + what +
                      "; this device or this version of llama.cpp is not supported (docs/engine.md)");
}

bool Hook::asked(ggml_tensor* node) {
    if (mode_ == Mode::pass) return false;
    if (mode_ == Mode::collect) nodes.push_back(node);
    if (mode_ == Mode::learn) return learns(node);
    if (mode_ != Mode::decide) return false;
    if (runs_on_slots(node) && (failure_ || node->src[2] != replaced_)) {
        // The true ids would reach past the slots: the node is made to do nothing, and the session ends.
        if (!failure_)
            failure_ = std::make_exception_ptr(
                EngineError(std::string("node '") + node->name + "' ran before its slots were known"));
        node->op = GGML_OP_NONE;
    }
    if (failure_ || next_ == events_.size() || events_[next_].name != node->name) return false;
    const Event& event = events_[next_];
    if (event.ids) ids_ = node;
    if (event.weights) weights_ = node;
    if (event.logits || event.last) return true;
    ++next_;
    return false;
}

void Hook::shown(ggml_tensor* node) {
    if (mode_ == Mode::learn) {  // any valid slots will do: only the order of nodes is wanted
        std::vector<std::int32_t> first(static_cast<std::size_t>(node->ne[0]));
        std::iota(first.begin(), first.end(), 0);
        ggml_backend_tensor_set(node, first.data(), 0, first.size() * sizeof(std::int32_t));
        return;
    }
    const TokenClock::Span span(decider_->clock, Part::policy);
    const Event& event = events_[next_++];
    try {
        if (event.logits) {
            z_.resize(static_cast<std::size_t>(graph_.model.experts));
            ggml_backend_tensor_get(node, z_.data(), 0, z_.size() * sizeof(float));
            decider_->begin(event.layer, z_.data());
        }
        if (event.last) replace_ids(event.layer);
    } catch (...) {  // an exception may not cross llama.cpp; end() throws it
        failure_ = std::current_exception();
    }
}

void Hook::replace_ids(int layer) {
    const auto top_k = static_cast<std::size_t>(graph_.model.top_k);
    if (ids_->ne[1] != 1 || ggml_nelements(weights_) != graph_.model.top_k)
        throw EngineError("more than one token was decoded at once under a policy");
    chosen_.resize(top_k);
    shares_.resize(top_k);
    ggml_backend_tensor_get(ids_, chosen_.data(), 0, top_k * sizeof(std::int32_t));
    if (decider_->finish(layer, chosen_, shares_))
        ggml_backend_tensor_set(weights_, shares_.data(), 0, top_k * sizeof(float));
    ggml_backend_tensor_set(ids_, chosen_.data(), 0, top_k * sizeof(std::int32_t));
    replaced_ = ids_;
}

bool Hook::learns(const ggml_tensor* node) {
    Seen seen{node->name, node->op, -1};
    bool is_ids = false;
    for (std::size_t layer = 0; layer < graph_.layers.size(); ++layer) {
        const std::string& ids = graph_.layers[layer].ids;
        is_ids = is_ids || ids == node->name;
        for (const ggml_tensor* source : node->src)
            if (source != nullptr && ids == source->name) seen.reads = static_cast<int>(layer);
    }
    seen_.push_back(std::move(seen));
    return is_ids;
}

void Hook::plan() {
    events_.clear();
    for (std::size_t layer = 0; layer < graph_.layers.size(); ++layer) plan_layer(static_cast<int>(layer));
    seen_.clear();
}

/// Finds the places of a layer's events in the order of execution, and refuses an order in which they would be wrong.
void Hook::plan_layer(int layer) {
    const RoutedLayer& routed = graph_.layers[layer];
    const int ran = static_cast<int>(seen_.size());
    const auto position = [&](const std::string& name) {
        const auto found =
            std::find_if(seen_.begin(), seen_.end(), [&](const Seen& seen) { return seen.name == name; });
        if (found == seen_.end()) refuse(layer, "node '" + name + "' does not run on this device");
        return static_cast<int>(found - seen_.begin());
    };
    const int logits = position(routed.logits), ids = position(routed.ids), weights = position(routed.weights);
    int first = ran;  // that runs on slots
    for (int at = ran - 1; at >= 0; --at)
        if (seen_[at].reads == layer && (seen_[at].op == GGML_OP_MUL_MAT_ID || seen_[at].op == GGML_OP_ADD_ID))
            first = at;
    if (first == ran) refuse(layer, "its experts run on another device than its router");
    const int last = first - 1;
    if (!(logits < ids && ids < weights && weights <= last))
        refuse(layer, "its experts run before their weights are known");
    int rows = 0;  // that the true ids choose: the gates of the chosen experts
    for (int at = 0; at <= last; ++at) rows += seen_[at].reads == layer && seen_[at].op == GGML_OP_GET_ROWS;
    if (rows != 1) refuse(layer, "factors of its experts are read before their products");
    for (int at = logits; at < last; ++at)
        if (seen_[at].name == seen_[last].name)
            refuse(layer, "node '" + seen_[last].name + "' is not the only one of its name");
    if (!events_.empty() && position(events_.back().name) >= logits) refuse(layer, "layers are mixed with each other");
    for (int at = logits; at <= last; ++at)
        if (at == logits || at == ids || at == weights || at == last)
            events_.push_back({seen_[at].name, layer, at == logits, at == ids, at == weights, at == last});
}

}  // namespace expertmiss::engine
