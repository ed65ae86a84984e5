// Where the bytes of every tensor of a GGUF model lie on disk. Models in several files are read as a whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace expertmiss::engine {

/// Bytes of a file.
struct Extent {
    int file = 0;  // index into GgufFile::paths
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

struct GgufFile {
    std::vector<std::string> paths;
    std::map<std::string, Extent> tensors;
    std::string architecture;
    int experts = 0;  // E; 0 in a dense model
    int top_k = 0;    // K

    /// Reads the headers. Throws EngineError: not a GGUF, a part of a split model missing, a tensor past the end of its
    /// file.
    explicit GgufFile(const std::string& path);

  private:
    void read_part(int part);
    int split_count_ = 1;
};

}  // namespace expertmiss::engine
