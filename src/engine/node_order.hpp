// Where the hook stops. The order in which a device runs a graph's nodes is not assumed: it is recorded, the stops are
// found in it, and an order in which they would be wrong is refused.
#pragma once

#include <string>
#include <vector>

#include "ggml.h"
#include "router_graph.hpp"

namespace expertmiss::engine {

/// A node as a device ran it.
struct RanNode {
    std::string name;
    ggml_op op;
    int reads;   // layer whose ids it reads, -1 none
    int weighs;  // layer whose weights it reads, -1 none
};

/// A node at which something happens.
struct Stop {
    std::string name;
    int layer;
    bool logits;   // it holds the router's logits
    bool ids;      // the chosen experts' ids
    bool weights;  // their weights
    bool last;     // it runs just before the experts' first product, which needs slots in place of ids
};

/// The stops of every layer in the recorded order. Throws EngineError where a reader of the true ids would get slots, a
/// product true ids, or weights would be replaced before they are there.
std::vector<Stop> plan_stops(const RouterGraph& graph, const std::vector<RanNode>& order);

[[noreturn]] void refuse_order(const RouterGraph& graph, int layer, const std::string& what);

}  // namespace expertmiss::engine
