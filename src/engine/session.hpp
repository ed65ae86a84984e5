// A model, its context, and an engine around them: prompts in batches on the file's tensors, tokens one by one on
// slots.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decide.hpp"
#include "gguf_file.hpp"
#include "hook.hpp"
#include "llama.h"
#include "router_graph.hpp"
#include "slots.hpp"
#include "store.hpp"
#include "times.hpp"

namespace expertmiss::engine {

struct SessionOptions {
    std::string store = "direct";    // slow tier: direct | mapped
    std::string device = "cpu";      // fast tier: cpu, a ggml device's name (CUDA0), or rpc:HOST:PORT
    std::string cache_type = "f16";  // of keys and values: f16 | f32
    int context = 4096;              // tokens
    int batch = 512;                 // prompt tokens computed at once
    int threads = 1;                 // of the model
    int io_threads = 8;              // reads under way at once
    bool flash_attention = false;
    bool repack = false;  // llama.cpp's own default on a processor; only stock runs then
};

class Session {
  public:
    /// Loads the model and checks everything that the engine assumes about it. Throws EngineError.
    Session(const std::string& path, SessionOptions options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const RouterGraph& router() const { return graph_; }
    const GgufFile& file() const { return file_; }
    /// In which the device ran the nodes of the last start's throw-away token.
    const std::vector<RanNode>& node_order() const { return hook_.order; }

    /// From now on tokens are decoded on `capacity` slots a layer under `policy`; a former start ends.
    void start(Policy policy, int capacity, std::vector<std::vector<int>> orders, DecideOptions options);
    /// From now on everything runs on stock llama.cpp with the same settings, nothing intercepted.
    void start_stock();
    bool stock() const { return decider_ == nullptr; }

    /// Forgets the text and starts a document: the policy's initial state.
    void reset(int document);
    /// Prompt tokens, lossless and without effect on the policy's state. The logits [V] after the last one.
    const float* prefill(const std::vector<int>& tokens);
    /// One token under the policy (or on stock). The logits [V] after it.
    const float* step(int token);
    /// Steps through `tokens` and returns the NLL, in nats, of each but the first.
    std::vector<double> nll(const std::vector<int>& tokens);

    int vocabulary() const { return llama_vocab_n_tokens(llama_model_get_vocab(model_.get())); }
    const llama_model* model() const { return model_.get(); }
    int position() const { return position_; }
    Decider& decider();
    const SlotCache& cache() const;
    double computing() const {
        return computing_;
    }  // seconds in llama_decode since the start, reads and policy included
    TokenClock& clock() { return clock_; }  // of step(), since the start; on stock everything is compute

  private:
    using ModelHandle = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
    using ContextHandle = std::unique_ptr<llama_context, decltype(&llama_free)>;

    void load();
    ContextHandle make_context(bool hooked);
    void inspect();
    void release_pages() const;
    void require_started() const;
    void require_room(const std::vector<int>& tokens) const;
    void decode(const int* tokens, int count, bool logits);

    const SessionOptions options_;
    const GgufFile file_;
    ggml_backend_dev_t device_ = nullptr;  // null: the processor
    ModelHandle model_;
    RouterGraph graph_;
    Hook hook_;
    std::unique_ptr<IoPool> pool_;
    std::unique_ptr<Store> store_;
    TokenClock clock_;
    // In this order: the context goes first, then the decider's reads end, then the tensors point at the file again.
    std::unique_ptr<SlotCache> cache_;
    std::unique_ptr<Decider> decider_;
    ContextHandle context_;
    int position_ = 0;
    bool broken_ = false;
    double computing_ = 0.0;
};

/// Serves this machine's processor as a device for other sessions, until the process ends. `endpoint`: HOST:PORT.
void serve_device(const std::string& endpoint, int threads);

}  // namespace expertmiss::engine
