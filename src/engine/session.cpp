#include "session.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "backend.hpp"
#include "error.hpp"

namespace expertmiss::engine {

Session::Session(const std::string& path, SessionOptions options)
    : options_(std::move(options)),
      file_(path),
      model_(nullptr, &llama_model_free),
      hook_(graph_),
      context_(nullptr, &llama_free) {
    start_backend();
    if (file_.experts < 1 || file_.top_k < 1)
        throw EngineError(path + ": a dense model, it has no experts; give a Mixture-of-Experts model");
    if (options_.cache_type != "f16" && options_.cache_type != "f32")
        throw EngineError("cache type '" + options_.cache_type + "': f16 or f32");
    if (options_.store != "direct" && options_.store != "mapped")
        throw EngineError("store '" + options_.store + "': direct or mapped");
    device_ = find_device(options_.device);
    load();
    inspect();
}

Session::~Session() = default;

void Session::load() {
    llama_model_params params = llama_model_default_params();
    ggml_backend_dev_t devices[] = {device_, nullptr};
    // The pattern takes the experts' biases along, which must be where the matrices are.
    const llama_model_tensor_buft_override host[] = {
        {"ffn_(up|gate|down|gate_up)_exps", ggml_backend_cpu_buffer_type()}, {nullptr, nullptr}};
    params.devices = devices;
    params.n_gpu_layers = device_ == nullptr ? 0 : 999;
    if (device_ != nullptr) params.tensor_buft_overrides = host;
    params.load_mode = LLAMA_LOAD_MODE_MMAP;
    params.use_extra_bufts = options_.repack;  // repacked tensors cannot be moved expert by expert
    model_.reset(llama_model_load_from_file(file_.paths[0].c_str(), params));
    if (!model_) throw EngineError(file_.paths[0] + ": llama.cpp cannot load it (" + last_log_line() + ")");
}

Session::ContextHandle Session::make_context(bool hooked) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(options_.context);
    params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(options_.batch);
    params.n_threads = params.n_threads_batch = options_.threads;
    params.flash_attn_type = options_.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = options_.cache_type == "f32" ? GGML_TYPE_F32 : GGML_TYPE_F16;
    if (hooked) {
        params.cb_eval = &Hook::callback;
        params.cb_eval_user_data = &hook_;
    }
    ContextHandle context(llama_init_from_model(model_.get(), params), &llama_free);
    if (!context) throw EngineError(file_.paths[0] + ": llama.cpp cannot make a context (" + last_log_line() + ")");
    return context;
}

/// Reads the router graph from one token, decoded on the file's tensors in a context of its own.
void Session::inspect() {
    context_ = make_context(true);
    hook_.collect();
    const int token = 0;
    decode(&token, 1, true);
    graph_ = read_router_graph(hook_.nodes, file_.paths[0], file_.experts, file_.top_k);
    hook_.nodes.clear();
    context_.reset();
    std::uint64_t largest = 0;
    for (const auto& [name, extent] : file_.tensors)
        largest = std::max(largest, extent.size / static_cast<std::uint64_t>(file_.experts));
    pool_ = std::make_unique<IoPool>(options_.io_threads);
    const StoreUse use{options_.io_threads, largest, device_};
    store_ = options_.store == "direct" ? open_direct(file_, use) : open_mapped(file_, use);
}

/// Gives back the memory that the mapped file's experts took at load: they are read past the page cache from now on.
/// Prompt batches fault them in again.
void Session::release_pages() const {
    constexpr std::uintptr_t page = 4096;
    for (const RoutedLayer& layer : graph_.layers) {
        for (const ExpertTensor& expert : layer.tensors) {
            // Anything but a mapping would lose its content.
            if (std::string(ggml_backend_buffer_name(expert.tensor->buffer)) != "CPU_Mapped") continue;
            const auto data = reinterpret_cast<std::uintptr_t>(expert.tensor->data);
            const std::uintptr_t begin = (data + page - 1) / page * page;
            const std::uintptr_t end = (data + ggml_nbytes(expert.tensor)) / page * page;
            if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
        }
    }
    for (const std::string& path : file_.paths) {
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) continue;
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        close(descriptor);
    }
}

void Session::start_stock() {
    context_.reset();
    decider_.reset();
    cache_.reset();
    context_ = make_context(false);
    position_ = 0;
    broken_ = false;
    computing_ = 0.0;
    clock_ = TokenClock{};
}

void Session::start(Policy policy, int capacity, std::vector<std::vector<int>> orders, DecideOptions options) {
    if (capacity < graph_.model.top_k || capacity > graph_.model.experts)
        throw EngineError(std::to_string(capacity) + " resident experts a layer: a token needs " +
                          std::to_string(graph_.model.top_k) + " of this model's " +
                          std::to_string(graph_.model.experts) + ", keep at least that many and at most all");
    check_policy(policy, graph_.model, capacity, graph_.model.candidates());
    context_.reset();
    decider_.reset();
    cache_.reset();
    cache_ = std::make_unique<SlotCache>(graph_, file_, *store_, *pool_, device_, capacity);
    decider_ = std::make_unique<Decider>(graph_.model, std::move(policy), capacity, std::move(orders), *cache_, clock_,
                                         options);
    if (options_.store == "direct") release_pages();
    cache_->use_slots();
    context_ = make_context(true);
    position_ = 0;
    hook_.learn();
    const int token = 0;
    decode(&token, 1, true);
    broken_ = false;
    computing_ = 0.0;
    clock_ = TokenClock{};
    reset(0);
}

void Session::require_started() const {
    if (!context_) throw EngineError("the session has not been started");
    if (broken_) throw EngineError("the session ended with an earlier error; start it again");
}

void Session::require_room(const std::vector<int>& tokens) const {
    require_started();
    for (const int token : tokens)
        if (token < 0 || token >= vocabulary())
            throw EngineError("token " + std::to_string(token) + " is not one of the vocabulary's " +
                              std::to_string(vocabulary()));
    if (position_ + static_cast<int>(tokens.size()) > options_.context)
        throw EngineError("the context of " + std::to_string(options_.context) +
                          " tokens is full; ask for a longer one or reset");
}

void Session::reset(int document) {
    require_started();
    llama_memory_clear(llama_get_memory(context_.get()), true);
    position_ = 0;
    if (!decider_) return;
    cache_->use_slots();
    decider_->reset(document);
}

/// Runs one batch of consecutive tokens of the only sequence.
void Session::decode(const int* tokens, int count, bool logits) {
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int i = 0; i < count; ++i) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position_ + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = logits && i == count - 1;
    }
    const auto begin = std::chrono::steady_clock::now();
    const int status = llama_decode(context_.get(), batch);
    llama_synchronize(context_.get());
    computing_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    llama_batch_free(batch);
    broken_ = true;  // until it is known to have ended well
    hook_.end();
    if (status != 0)
        throw EngineError("llama.cpp could not decode (status " + std::to_string(status) + ": " + last_log_line() +
                          ")");
    broken_ = false;
    position_ += count;
}

const float* Session::prefill(const std::vector<int>& tokens) {
    if (tokens.empty()) throw EngineError("the prompt is empty");
    require_room(tokens);
    if (cache_) cache_->use_file();
    hook_.pass();
    const int count = static_cast<int>(tokens.size());
    for (int begin = 0; begin < count;) {
        // No piece of one token unless the prompt is one: a graph of one token on the file's tensors would be reused
        // on slots.
        int piece = std::min(options_.batch, count - begin);
        if (count - begin - piece == 1 && piece > 2) --piece;
        // The only piece of one token is computed with embeddings on, which makes llama.cpp build another graph before
        // and after.
        llama_set_embeddings(context_.get(), piece == 1 && cache_ != nullptr);
        decode(tokens.data() + begin, piece, begin + piece == count);
        begin += piece;
    }
    const float* logits = llama_get_logits_ith(context_.get(), -1);
    llama_set_embeddings(context_.get(), false);
    if (cache_) cache_->use_slots();
    return logits;
}

const float* Session::step(int token) {
    require_room({token});
    clock_.begin();
    if (decider_) hook_.decide(*decider_);
    decode(&token, 1, true);
    const float* logits = llama_get_logits_ith(context_.get(), -1);
    clock_.end();
    return logits;
}

std::vector<double> Session::nll(const std::vector<int>& tokens) {
    require_room(tokens);
    std::vector<double> losses;
    for (std::size_t at = 0; at + 1 < tokens.size(); ++at) {
        const float* logits = step(tokens[at]);
        const double largest = *std::max_element(logits, logits + vocabulary());
        double sum = 0.0;
        for (int id = 0; id < vocabulary(); ++id) sum += std::exp(static_cast<double>(logits[id]) - largest);
        losses.push_back(largest + std::log(sum) - static_cast<double>(logits[tokens[at + 1]]));
        if (!std::isfinite(losses.back()))
            throw EngineError("the logits of token " + std::to_string(at) + " are not finite");
    }
    return losses;
}

Decider& Session::decider() {
    if (!decider_) throw EngineError("the session runs on stock llama.cpp, without a policy");
    return *decider_;
}

const SlotCache& Session::cache() const {
    if (!cache_) throw EngineError("the session runs on stock llama.cpp, without slots");
    return *cache_;
}

}  // namespace expertmiss::engine
