// What the engine needs to know about a model's graph, found by walking the nodes of one decoded token; nothing is
// assumed that is not checked here.
#pragma once

#include <string>
#include <vector>

#include "ggml.h"
#include "model.hpp"

namespace expertmiss::engine {

/// A tensor that holds something of every expert: a matrix, the bias added to its product, or a factor on its product.
struct ExpertTensor {
    ggml_tensor* tensor = nullptr;
    int dimension = 2;  // that counts experts: 2 of matrices, 1 of biases, 0 of factors
};

/// One Mixture-of-Experts layer.
struct RoutedLayer {
    int block = 0;        // decoder layer, as in the names of its tensors
    std::string logits;   // node that holds the router's logits [E]
    std::string ids;      // node that holds the chosen experts' ids [K]
    std::string weights;  // node that holds the weights of the chosen experts [K], as they are multiplied in
    std::vector<ExpertTensor> tensors;
};

struct RouterGraph {
    std::vector<RoutedLayer> layers;
    Model model;  // as the policy core takes it
    bool after_topk = false;
};

/// Reads the nodes of one token's graph, in order of execution. `file` names the model in messages.
/// Throws EngineError for a graph that does not route as the engine needs it.
RouterGraph read_router_graph(const std::vector<ggml_tensor*>& nodes, const std::string& file, int experts, int top_k);

}  // namespace expertmiss::engine
