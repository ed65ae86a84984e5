#include "gguf_file.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "error.hpp"
#include "gguf.h"
#include "llama.h"

namespace expertmiss::engine {
namespace {

using Gguf = std::unique_ptr<gguf_context, decltype(&gguf_free)>;

Gguf open_header(const std::string& path) {
    if (!std::filesystem::is_regular_file(path))
        throw EngineError(path + ": no such file; give the path of a GGUF model");
    Gguf header(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}), &gguf_free);
    if (!header)
        throw EngineError(path + ": not a readable GGUF file (wrong kind, or cut short in its header); fetch it again");
    return header;
}

int integer(const gguf_context* header, const std::string& key) {
    const std::int64_t at = gguf_find_key(header, key.c_str());
    if (at < 0) return 0;
    switch (gguf_get_kv_type(header, at)) {
        case GGUF_TYPE_UINT16:
            return gguf_get_val_u16(header, at);
        case GGUF_TYPE_UINT32:
            return static_cast<int>(gguf_get_val_u32(header, at));
        case GGUF_TYPE_INT32:
            return gguf_get_val_i32(header, at);
        default:
            return 0;
    }
}

/// The path of one part of a split model, from the path of its first part.
std::string part_path(const std::string& first, int part, int count) {
    char prefix[4096], path[4096];
    if (llama_split_prefix(prefix, sizeof prefix, first.c_str(), 0, count) == 0)
        throw EngineError(first + ": the first of " + std::to_string(count) +
                          " files, but not named as such (...-00001-of-0000N.gguf); rename it");
    llama_split_path(path, sizeof path, prefix, part, count);
    return path;
}

}  // namespace

GgufFile::GgufFile(const std::string& path) {
    const Gguf header = open_header(path);
    split_count_ = std::max(1, integer(header.get(), "split.count"));
    if (integer(header.get(), "split.no") != 0)
        throw EngineError(path + ": a later part of a split model; give the first of its " +
                          std::to_string(split_count_) + " files");
    const std::int64_t at = gguf_find_key(header.get(), "general.architecture");
    if (at < 0) throw EngineError(path + ": names no architecture; give a model, not an adapter or a vocabulary");
    architecture = gguf_get_val_str(header.get(), at);
    experts = integer(header.get(), architecture + ".expert_count");
    top_k = integer(header.get(), architecture + ".expert_used_count");
    for (int part = 0; part < split_count_; ++part) {
        paths.push_back(split_count_ == 1 ? path : part_path(path, part, split_count_));
        read_part(part);
    }
}

void GgufFile::read_part(int part) {
    const std::string& path = paths[part];
    const Gguf header = open_header(path);
    const std::uint64_t end = std::filesystem::file_size(path);
    for (std::int64_t id = 0; id < gguf_get_n_tensors(header.get()); ++id) {
        const Extent extent{.file = part,
                            .offset = gguf_get_data_offset(header.get()) + gguf_get_tensor_offset(header.get(), id),
                            .size = gguf_get_tensor_size(header.get(), id)};
        const std::string name = gguf_get_tensor_name(header.get(), id);
        if (extent.offset + extent.size > end)
            throw EngineError(path + ": cut short (tensor " + name + " ends past the end of the file); fetch it again");
        tensors[name] = extent;
    }
}

}  // namespace expertmiss::engine
