#include "host_memory.hpp"

#include <string>

#include "error.hpp"

namespace expertmiss::engine {

bool has_pinned_memory(ggml_backend_dev_t device) {
    return device != nullptr && ggml_backend_dev_host_buffer_type(device) != nullptr;
}

HostBlock host_block(ggml_backend_dev_t device, std::uint64_t size) {
    const ggml_backend_buffer_type_t type =
        has_pinned_memory(device) ? ggml_backend_dev_host_buffer_type(device) : ggml_backend_cpu_buffer_type();
    HostBlock block;
    block.buffer.reset(ggml_backend_buft_alloc_buffer(type, size + kReadAlign));
    if (block.buffer == nullptr) throw EngineError("no host memory for a buffer of " + std::to_string(size) + " bytes");
    const auto base = reinterpret_cast<std::uintptr_t>(ggml_backend_buffer_get_base(block.buffer.get()));
    block.bytes = reinterpret_cast<char*>((base + kReadAlign - 1) / kReadAlign * kReadAlign);
    block.size = size;
    return block;
}

}  // namespace expertmiss::engine
