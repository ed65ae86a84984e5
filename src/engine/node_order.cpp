#include "node_order.hpp"

#include <algorithm>

#include "error.hpp"

namespace expertmiss::engine {
namespace {

/// Position in the order of the node of this name.
int position(const RouterGraph& graph, const std::vector<RanNode>& order, int layer, const std::string& name) {
    const auto found = std::find_if(order.begin(), order.end(), [&](const RanNode& node) { return node.name == name; });
    if (found == order.end()) refuse_order(graph, layer, "node '" + name + "' does not run on this device");
    return static_cast<int>(found - order.begin());
}

void plan_layer(const RouterGraph& graph, const std::vector<RanNode>& order, int layer, std::vector<Stop>& stops) {
    const RoutedLayer& routed = graph.layers[layer];
    const int ran = static_cast<int>(order.size());
    const int logits = position(graph, order, layer, routed.logits), ids = position(graph, order, layer, routed.ids),
              weights = position(graph, order, layer, routed.weights);
    int first = ran;  // that runs on slots
    for (int at = ran - 1; at >= 0; --at)
        if (order[at].reads == layer && (order[at].op == GGML_OP_MUL_MAT_ID || order[at].op == GGML_OP_ADD_ID))
            first = at;
    if (first == ran) refuse_order(graph, layer, "its experts run on another device than its router");
    const int last = first - 1;
    if (!(logits < ids && ids < weights && weights <= last))
        refuse_order(graph, layer, "its experts run before their weights are known");
    int rows = 0;  // that the true ids choose: the gates of the chosen experts
    for (int at = 0; at <= last; ++at) rows += order[at].reads == layer && order[at].op == GGML_OP_GET_ROWS;
    if (rows == 0) refuse_order(graph, layer, "the gates of its experts are read after their products");
    if (rows > 1) refuse_order(graph, layer, "factors of its experts are read before their products");
    for (int at = weights + 1; at <= last; ++at)
        if (order[at].weighs == layer)
            refuse_order(graph, layer, "the weights of its experts are used before their products");
    for (int at = logits; at < last; ++at)
        if (order[at].name == order[last].name)
            refuse_order(graph, layer, "node '" + order[last].name + "' is not the only one of its name");
    if (!stops.empty() && position(graph, order, layer, stops.back().name) >= logits)
        refuse_order(graph, layer, "layers are mixed with each other");
    for (int at = logits; at <= last; ++at)
        if (at == logits || at == ids || at == weights || at == last)
            stops.push_back({order[at].name, layer, at == logits, at == ids, at == weights, at == last});
}

}  // namespace

void refuse_order(const RouterGraph& graph, int layer, const std::string& what) {
    throw EngineError("layer " + std::to_string(graph.layers[layer].block) + ": " + what +
                      "; this device or this version of llama.cpp is not supported (docs/engine.md)");
}

std::vector<Stop> plan_stops(const RouterGraph& graph, const std::vector<RanNode>& order) {
    std::vector<Stop> stops;
    for (std::size_t layer = 0; layer < graph.layers.size(); ++layer)
        plan_layer(graph, order, static_cast<int>(layer), stops);
    return stops;
}

}  // namespace expertmiss::engine
