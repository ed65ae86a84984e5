#include "router_graph.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "error.hpp"
#include "ggml-backend.h"

namespace expertmiss::engine {
namespace {

/// Decoder layer of a node: the number behind the last '-' of its name; -1 without one.
int block_of(const ggml_tensor* node) {
    const char* at = std::strrchr(node->name, '-');
    return at != nullptr && at[1] != '\0' ? std::atoi(at + 1) : -1;
}

class Reader {
  public:
    Reader(const std::vector<ggml_tensor*>& nodes, std::string file, int experts, int top_k)
        : nodes_(nodes), file_(std::move(file)) {
        graph_.model.experts = experts;
        graph_.model.top_k = top_k;
    }

    RouterGraph read() {
        std::map<int, std::vector<const ggml_tensor*>> products;  // by block
        for (const ggml_tensor* node : nodes_)
            if (node->op == GGML_OP_MUL_MAT_ID) products[block_of(source(node, 2))].push_back(node);
        if (products.empty())
            throw EngineError(file_ +
                              ": no layer of this model multiplies by experts; give a Mixture-of-Experts model");
        for (const auto& [block, found] : products) read_layer(block, found);
        graph_.model.layers = static_cast<int>(graph_.layers.size());
        check_model(graph_.model);
        return std::move(graph_);
    }

  private:
    [[noreturn]] void refuse(int block, const std::string& what) const {
        throw EngineError(file_ + ": layer " + std::to_string(block) + ": " + what +
                          "; this way of routing is not supported (docs/engine.md lists what is)");
    }

    /// A node's source. Where parts of the graph run on different devices the scheduler puts copies, named
    /// DEVICE#NAME#NUMBER, in the place of nodes.
    ggml_tensor* source(const ggml_tensor* node, int index) const {
        ggml_tensor* found = node->src[index];
        const std::string name = found == nullptr ? "" : found->name;
        const std::size_t begin = name.find('#'), end = name.rfind('#');
        if (begin == end) return found;
        const std::string original = name.substr(begin + 1, end - begin - 1);
        const auto at = std::find_if(nodes_.begin(), nodes_.end(),
                                     [&](const ggml_tensor* other) { return original == other->name; });
        return at == nodes_.end() ? found : *at;
    }

    void read_layer(int block, const std::vector<const ggml_tensor*>& products) {
        if (block < 0) refuse(block, "the ids of its experts have no layer in their name");
        RoutedLayer layer;
        layer.block = block;
        const ggml_tensor* ids = source(products[0], 2);
        for (const ggml_tensor* product : products) {
            if (source(product, 2) != ids) refuse(block, "its experts are chosen more than once");
            add(layer, product->src[0], 2);
        }
        layer.ids = ids->name;
        read_choice(layer, ids);
        const ggml_tensor* rows = read_weights(layer, ids);
        for (ggml_tensor* node : nodes_)
            if (node != rows) read_other_use(layer, node, ids);
        graph_.layers.push_back(std::move(layer));
    }

    void add(RoutedLayer& layer, ggml_tensor* tensor, int dimension) {
        const std::string name = tensor->name;
        const ggml_backend_buffer_t buffer = tensor->buffer;
        if (buffer == nullptr || ggml_backend_buffer_get_usage(buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS ||
            tensor->view_src != nullptr)
            refuse(layer.block, "'" + name + "' is not a weight of the file");
        if (tensor->ne[dimension] != graph_.model.experts)
            refuse(layer.block, "'" + name + "' holds " + std::to_string(tensor->ne[dimension]) +
                                    " experts, the file says " + std::to_string(graph_.model.experts));
        for (int inner = dimension; inner < GGML_MAX_DIMS - 1; ++inner)
            if (tensor->nb[inner + 1] != tensor->nb[inner] * static_cast<std::size_t>(tensor->ne[inner]))
                refuse(layer.block, "'" + name + "' is not contiguous");
        layer.tensors.push_back({tensor, dimension});
    }

    /// What else reads the chosen ids: biases and factors of experts, which move into the slots with their matrices.
    void read_other_use(RoutedLayer& layer, ggml_tensor* node, const ggml_tensor* ids) {
        bool reads = false;
        for (int index = 0; index < GGML_MAX_SRC; ++index) reads = reads || source(node, index) == ids;
        if (!reads) return;
        if (node->op == GGML_OP_MUL_MAT_ID) return;
        if (node->op == GGML_OP_ADD_ID) return add(layer, node->src[1], 1);
        ggml_tensor* factors = node->op == GGML_OP_GET_ROWS ? source(node, 0) : nullptr;
        while (factors != nullptr && (factors->op == GGML_OP_RESHAPE || factors->op == GGML_OP_REPEAT))
            factors = source(factors, 0);
        if (factors == nullptr || factors->op != GGML_OP_NONE)
            refuse(layer.block, std::string("the ids of its experts are also read by ") + ggml_op_desc(node) + " '" +
                                    node->name + "'");
        add(layer, factors, 0);
    }

    /// From the ids back to the router's logits: ids <- argsort <- [bias] <- softmax, sigmoid or nothing <- logits.
    void read_choice(RoutedLayer& layer, const ggml_tensor* ids) {
        const int block = layer.block;
        const ggml_tensor* order = ids->op == GGML_OP_VIEW ? ids->view_src : nullptr;
        if (ids->type != GGML_TYPE_I32 || order == nullptr || order->op != GGML_OP_ARGSORT || ids->view_offs != 0)
            refuse(block, "its experts are not the first of a sorted list");
        if (ids->ne[0] != graph_.model.top_k) refuse(block, "it executes another number of experts than the file says");
        const ggml_tensor* scores = source(order, 0);
        if (scores->ne[0] != graph_.model.experts) refuse(block, "its router does not score all experts");
        const auto is_gate = [](const ggml_tensor* node) {
            return node->op == GGML_OP_SOFT_MAX ||
                   (node->op == GGML_OP_UNARY && ggml_get_unary_op(node) == GGML_UNARY_OP_SIGMOID);
        };
        if (scores->op == GGML_OP_ADD && is_gate(source(scores, 0))) {
            add_bias(block, scores->src[1]);
            scores = source(scores, 0);
        } else if (graph_.model.has_bias()) {
            refuse(block, "it has no selection bias, other layers have one");
        }
        Gating gating = Gating::softmax;
        const ggml_tensor* logits = scores;
        if (is_gate(scores)) {
            gating = scores->op == GGML_OP_UNARY ? Gating::sigmoid : Gating::softmax;
            logits = source(scores, 0);
        } else {
            after_topk_ = true;
        }
        if (logits->op != GGML_OP_MUL_MAT && logits->op != GGML_OP_ADD)
            refuse(block, std::string("its scores come from ") + ggml_op_desc(logits) + " '" + logits->name +
                              "', not from a router's product");
        if (!graph_.layers.empty() && gating != graph_.model.gating)
            refuse(block, "its gates are of another kind than those of other layers");
        graph_.model.gating = gating;
        layer.logits = logits->name;
        gates_ = scores;
    }

    void add_bias(int block, const ggml_tensor* bias) {
        const auto experts = static_cast<std::size_t>(graph_.model.experts);
        if (bias->type != GGML_TYPE_F32 || ggml_nelements(bias) != graph_.model.experts)
            refuse(block, "its selection bias is not one number for each expert");
        if (graph_.model.bias.size() != graph_.layers.size() * experts)
            refuse(block, "it has a selection bias, other layers have none");
        std::vector<float> values(experts);
        ggml_backend_tensor_get(bias, values.data(), 0, experts * sizeof(float));
        graph_.model.bias.insert(graph_.model.bias.end(), values.begin(), values.end());
    }

    /// From the weights that are multiplied in back to the gates: [scale] <- [normalise] <- [softmax] <- rows of the
    /// gates. Returns the node that reads the rows.
    const ggml_tensor* read_weights(RoutedLayer& layer, const ggml_tensor* ids) {
        const int block = layer.block;
        const ggml_tensor* weights = nullptr;
        for (const ggml_tensor* node : nodes_)
            if (node->op == GGML_OP_MUL && block_of(node) == block &&
                std::strncmp(node->name, "ffn_moe_weighted-", 17) == 0)
                weights = source(node, 1);
        if (weights == nullptr) refuse(block, "the weights of its experts were not found");
        bool normalise = false, after_topk = false;
        double scale = 1.0;
        const ggml_tensor* node = weights;
        while (node->op != GGML_OP_GET_ROWS) {
            if (node->op != GGML_OP_RESHAPE && layer.weights.empty()) layer.weights = node->name;
            if (node->op == GGML_OP_SCALE) {
                float factor[2];
                std::memcpy(factor, node->op_params, sizeof factor);
                if (factor[1] != 0.0f) refuse(block, "its expert weights are shifted");
                scale *= static_cast<double>(factor[0]);
            } else if (node->op == GGML_OP_DIV) {
                normalise = true;
            } else if (node->op == GGML_OP_SOFT_MAX) {
                after_topk = true;
            } else if (node->op != GGML_OP_RESHAPE) {
                refuse(block,
                       std::string("its expert weights go through ") + ggml_op_desc(node) + " '" + node->name + "'");
            }
            node = source(node, 0);
        }
        if (layer.weights.empty()) layer.weights = node->name;
        const ggml_tensor* rows = source(node, 0);
        while (rows->op == GGML_OP_RESHAPE) rows = source(rows, 0);
        if (source(node, 1) != ids || rows != gates_)
            refuse(block, "its expert weights are not the gates of the chosen experts");
        if (after_topk != after_topk_) refuse(block, "softmax stands neither before nor after the choice");
        if (!graph_.layers.empty() &&
            (normalise != normalise_ || scale != graph_.model.scale || after_topk != graph_.after_topk))
            refuse(block, "its expert weights are made in another way than those of other layers");
        normalise_ = normalise;
        graph_.model.normalise = normalise || after_topk;
        graph_.model.scale = scale;
        graph_.after_topk = after_topk;
        after_topk_ = false;
        return node;
    }

    const std::vector<ggml_tensor*>& nodes_;
    const std::string file_;
    RouterGraph graph_;
    const ggml_tensor* gates_ = nullptr;  // of the layer being read
    bool after_topk_ = false;             // the layer being read has no gates before its choice
    bool normalise_ = false;
};

}  // namespace

RouterGraph read_router_graph(const std::vector<ggml_tensor*>& nodes, const std::string& file, int experts, int top_k) {
    return Reader(nodes, file, experts, top_k).read();
}

}  // namespace expertmiss::engine
