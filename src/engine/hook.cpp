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
    order.clear();
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
    if (mode == Mode::learn) stops_ = plan_stops(graph_, order);
    if (mode == Mode::decide && next_ != stops_.size())
        refuse_order(graph_, stops_[next_].layer, "node '" + stops_[next_].name + "' did not run in its turn");
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
    if (failure_ || next_ == stops_.size() || stops_[next_].name != node->name) return false;
    const Stop& stop = stops_[next_];
    if (stop.ids) ids_ = node;
    if (stop.weights) weights_ = node;
    if (stop.logits || stop.last) return true;
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
    const Stop& stop = stops_[next_++];
    try {
        if (stop.logits) {
            z_.resize(static_cast<std::size_t>(graph_.model.experts));
            ggml_backend_tensor_get(node, z_.data(), 0, z_.size() * sizeof(float));
            decider_->begin(stop.layer, z_.data());
        }
        if (stop.last) replace_ids(stop.layer);
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
    RanNode seen{node->name, node->op, -1, -1};
    bool is_ids = false;
    for (std::size_t layer = 0; layer < graph_.layers.size(); ++layer) {
        const RoutedLayer& routed = graph_.layers[layer];
        is_ids = is_ids || routed.ids == node->name;
        for (const ggml_tensor* source : node->src) {
            if (source != nullptr && routed.ids == source->name) seen.reads = static_cast<int>(layer);
            while (source != nullptr && source->op == GGML_OP_RESHAPE) source = source->src[0];
            const bool uses = node->op != GGML_OP_RESHAPE && source != nullptr && routed.weights == source->name;
            if (uses) seen.weighs = static_cast<int>(layer);
        }
    }
    order.push_back(std::move(seen));
    return is_ids;
}

}  // namespace expertmiss::engine
