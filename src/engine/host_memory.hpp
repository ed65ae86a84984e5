// Host memory from which experts are copied into slots: pinned where the slots' device has such memory, so that the
// device fetches it without the processor; ordinary memory otherwise.
#pragma once

#include <cstdint>
#include <memory>

#include "ggml-backend.h"

namespace expertmiss::engine {

struct FreeBuffer {
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};
using BufferHandle = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;

/// Offsets, lengths and memory of direct reads: a multiple of every block size in use.
inline constexpr std::uint64_t kReadAlign = 4096;

struct HostBlock {
    BufferHandle buffer;
    char* bytes = nullptr;  // aligned for direct reads
    std::uint64_t size = 0;
};

/// Whether a device (null: the processor) has host memory of its own kind.
bool has_pinned_memory(ggml_backend_dev_t device);
/// Throws EngineError where memory is short.
HostBlock host_block(ggml_backend_dev_t device, std::uint64_t size);

}  // namespace expertmiss::engine
