// The slow tier: where the bytes of experts are read from when they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "gguf_file.hpp"

namespace expertmiss::engine {

class Store {
  public:
    virtual ~Store() = default;
    /// The bytes of `extent`, readable until the same thread's next call and in memory that copies well to the slots'
    /// device. Threads are numbered from 0. Throws EngineError.
    virtual const char* read(const Extent& extent, int thread) = 0;
    /// Whether a read can wait on a disk, so that several should be under way at once.
    virtual bool waits() const = 0;
};

/// What reads may need: how many threads make them, the largest extent, and the device of the slots (null: the
/// processor).
struct StoreUse {
    int threads;
    std::uint64_t largest;
    ggml_backend_dev_t device;
};

/// Reads the file past the page cache (O_DIRECT), in aligned pieces. Throws EngineError where the file system cannot.
std::unique_ptr<Store> open_direct(const GgufFile& file, const StoreUse& use);
/// Maps the file: experts are served from host memory once the kernel holds them, through pinned memory where the
/// device has it.
std::unique_ptr<Store> open_mapped(const GgufFile& file, const StoreUse& use);

}  // namespace expertmiss::engine
