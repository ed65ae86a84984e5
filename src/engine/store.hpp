// The slow tier: where the bytes of experts are read from when they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gguf_file.hpp"

namespace expertmiss::engine {

class Store {
  public:
    virtual ~Store() = default;
    /// The bytes of `extent`, readable until the same thread's next call. Threads are numbered from 0. Throws
    /// EngineError.
    virtual const char* read(const Extent& extent, int thread) = 0;
    /// Whether a read can wait on a disk, so that several should be under way at once.
    virtual bool waits() const = 0;
};

/// Reads the file past the page cache (O_DIRECT), in aligned pieces. Throws EngineError where the file system cannot.
std::unique_ptr<Store> open_direct(const GgufFile& file, int threads, std::uint64_t largest);
/// Maps the file: experts are served from host memory once the kernel holds them.
std::unique_ptr<Store> open_mapped(const GgufFile& file);

}  // namespace expertmiss::engine
