// The interception: llama.cpp asks a callback about every node of the graph before it runs and shows it those it asks
// to see. The hook stops twice a layer: at the router's logits, where the policy decides and reads begin, and at the
// last node before the experts' first product, where the chosen ids are replaced by slots (and, for a policy, the
// weights by the executed experts'). Every true reader of the ids has run by then, and fusions of the routing stay
// whole.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "decide.hpp"
#include "ggml.h"
#include "node_order.hpp"
#include "router_graph.hpp"

namespace expertmiss::engine {

class Hook {
  public:
    explicit Hook(const RouterGraph& graph) : graph_(graph) {}
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

    /// What llama_context_params::cb_eval and cb_eval_user_data take.
    static bool callback(ggml_tensor* node, bool ask, void* self);

    // Modes; one is chosen before each decode, and `end` closes all but `pass`.
    void pass() { mode_ = Mode::pass; }  // prompt batches on the file's tensors
    void collect();                      // remember every node of the graph, change nothing
    void learn();                        // a throw-away token: remember the order in which nodes really run
    void decide(Decider& decider);       // a token under the policy
    /// Throws what went wrong during the decode, and when a layer was not seen.
    void end();

    std::vector<ggml_tensor*> nodes;  // of the decode in mode `collect`; they live until the context's next graph
    std::vector<RanNode> order;       // of the decode in mode `learn`

  private:
    enum class Mode { pass, collect, learn, decide };
    bool asked(ggml_tensor* node);
    void shown(ggml_tensor* node);
    bool learns(const ggml_tensor* node);
    void replace_ids(int layer);

    const RouterGraph& graph_;
    Mode mode_ = Mode::pass;
    Decider* decider_ = nullptr;
    std::vector<Stop> stops_;
    std::size_t next_ = 0;
    ggml_tensor* ids_ = nullptr;        // of the layer being routed
    ggml_tensor* weights_ = nullptr;    // of the layer being routed
    ggml_tensor* replaced_ = nullptr;   // the ids that are slots by now
    std::vector<float> z_;              // [E]
    std::vector<std::int32_t> chosen_;  // [K]
    std::vector<float> shares_;         // [K]
    std::exception_ptr failure_;
};

}  // namespace expertmiss::engine
