#include "backend.hpp"

#include <cstdlib>
#include <mutex>

#include "error.hpp"
#include "llama.h"
#include "session.hpp"

namespace expertmiss::engine {
namespace {

std::mutex log_mutex;
std::string log_line;

void keep_line(ggml_log_level level, const char* text, void*) {
    if (level != GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_ERROR) return;
    std::string line = text;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    const bool says_why = !line.empty() && line.find("failed to load model") == std::string::npos;
    const std::lock_guard lock(log_mutex);
    if (says_why) log_line = line;
}

ggml_backend_reg_t rpc() {
    const ggml_backend_reg_t found = ggml_backend_reg_by_name("RPC");
    if (found == nullptr)
        throw EngineError(
            "llama.cpp was built without RPC devices; build it with -DGGML_RPC=ON (make setup-engine does)");
    return found;
}

}  // namespace

void start_backend() {
    static std::once_flag once;
    std::call_once(once, [] {
        // ggml reads it when its first CUDA graph would be recorded.
        setenv("GGML_CUDA_DISABLE_GRAPHS", "1", 1);
        llama_log_set(&keep_line, nullptr);
        llama_backend_init();
    });
}

std::string last_log_line() {
    const std::lock_guard lock(log_mutex);
    return log_line.empty() ? "no reason given" : log_line;
}

ggml_backend_dev_t find_device(const std::string& name) {
    if (name == "cpu") return nullptr;
    if (name.rfind("rpc:", 0) == 0) {
        using AddServer = ggml_backend_reg_t (*)(const char*);
        const auto add =
            reinterpret_cast<AddServer>(ggml_backend_reg_get_proc_address(rpc(), "ggml_backend_rpc_add_server"));
        const ggml_backend_reg_t server = add == nullptr ? nullptr : add(name.c_str() + 4);
        if (server == nullptr || ggml_backend_reg_dev_count(server) == 0)
            throw EngineError("device '" + name + "': no server answers there");
        return ggml_backend_reg_dev_get(server, 0);
    }
    if (const ggml_backend_dev_t found = ggml_backend_dev_by_name(name.c_str()); found != nullptr) return found;
    std::string known = "cpu, rpc:HOST:PORT";
    for (std::size_t at = 0; at < ggml_backend_dev_count(); ++at)
        if (ggml_backend_dev_type(ggml_backend_dev_get(at)) != GGML_BACKEND_DEVICE_TYPE_CPU)
            known += std::string(", ") + ggml_backend_dev_name(ggml_backend_dev_get(at));
    throw EngineError("device '" + name + "': not there; this build knows " + known);
}

void serve_device(const std::string& endpoint, int threads) {
    start_backend();
    using Serve = void (*)(const char*, const char*, std::size_t, std::size_t, ggml_backend_dev_t*);
    const auto serve =
        reinterpret_cast<Serve>(ggml_backend_reg_get_proc_address(rpc(), "ggml_backend_rpc_start_server"));
    if (serve == nullptr) throw EngineError("this llama.cpp cannot serve devices");
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    serve(endpoint.c_str(), nullptr, static_cast<std::size_t>(threads), 1, &device);
    throw EngineError(endpoint + ": cannot be served (is the port taken?)");
}

}  // namespace expertmiss::engine
