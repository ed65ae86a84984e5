#include "slots.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "error.hpp"

namespace expertmiss::engine {
namespace {

// Below this many bytes in all, experts in host memory are copied to host slots at once: waking threads costs more than
// the copy.
constexpr std::uint64_t kCopyAtOnce = 1 << 20;
constexpr std::uintptr_t kHugePage = 2 << 20;

/// Slots in huge pages: with 4 KiB pages, decoding from slots was 3 to 5 % slower than from the mapped file.
void ask_for_huge_pages(ggml_backend_buffer_t buffer) {
    const auto base = reinterpret_cast<std::uintptr_t>(ggml_backend_buffer_get_base(buffer));
    const std::uintptr_t begin = (base + kHugePage - 1) / kHugePage * kHugePage;
    const std::uintptr_t end = (base + ggml_backend_buffer_get_size(buffer)) / kHugePage * kHugePage;
    if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

std::vector<char> read_plainly(const std::string& path, std::uint64_t offset, std::size_t size) {
    std::vector<char> bytes(size);
    std::ifstream stream(path, std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    stream.read(bytes.data(), static_cast<std::streamsize>(size));
    if (!stream) throw EngineError(path + ": cannot be read at byte " + std::to_string(offset));
    return bytes;
}

}  // namespace

void SlotCache::Place::keep(const ggml_tensor* tensor) {
    data = tensor->data;
    extra = tensor->extra;
    buffer = tensor->buffer;
    std::copy_n(tensor->ne, GGML_MAX_DIMS, ne);
    std::copy_n(tensor->nb, GGML_MAX_DIMS, nb);
}

void SlotCache::Place::restore(ggml_tensor* tensor) const {
    tensor->data = data;
    tensor->extra = extra;
    tensor->buffer = buffer;
    std::copy_n(ne, GGML_MAX_DIMS, tensor->ne);
    std::copy_n(nb, GGML_MAX_DIMS, tensor->nb);
}

SlotCache::SlotCache(const RouterGraph& graph, const GgufFile& file, Store& store, IoPool& pool,
                     ggml_backend_dev_t device, int slots)
    : file_(file), store_(store), pool_(pool), slots_(slots), device_(device), copier_(device) {
    const ggml_backend_buffer_type_t buffers =
        device == nullptr ? ggml_backend_cpu_buffer_type() : ggml_backend_dev_buffer_type(device);
    for (const RoutedLayer& routed : graph.layers) {
        Layer layer;
        layer.block = routed.block;
        layer.slot_of.assign(graph.model.experts, -1);
        layer.expert_in.assign(slots, -1);
        for (const auto& [tensor, dimension] : routed.tensors) {
            const auto found = file.tensors.find(tensor->name);
            if (found == file.tensors.end() || found->second.size != ggml_nbytes(tensor))
                throw EngineError(file.paths[0] + ": tensor '" + tensor->name +
                                  "' is not in the file as it was loaded");
            Tensor& added = layer.tensors.emplace_back();
            added.tensor = tensor;
            added.dimension = dimension;
            added.stride = tensor->nb[dimension];
            added.extent = found->second;
            added.file.keep(tensor);
            layer.expert_bytes += added.stride;
            check_bytes(layer, added, graph.model.experts);
            if (dimension < 2) {
                added.small.resize(ggml_nbytes(tensor));
                ggml_backend_tensor_get(tensor, added.small.data(), 0, added.small.size());
            }
            allocate(added, buffers);
        }
        layers_.push_back(std::move(layer));
    }
}

SlotCache::~SlotCache() { use_file(); }

/// First and last expert as loaded against the file. A repacked tensor lies in a buffer that cannot be read plainly.
void SlotCache::check_bytes(const Layer& layer, const Tensor& tensor, int experts) const {
    const auto refuse = [&] {
        throw EngineError(file_.paths[0] + ": layer " + std::to_string(layer.block) + ": '" + tensor.tensor->name +
                          "' was loaded in another form than the file's (repacked, or not in host memory); experts can "
                          "be moved only as the "
                          "file holds them");
    };
    if (!ggml_backend_buffer_is_host(tensor.tensor->buffer)) refuse();
    for (const int expert : {0, experts - 1}) {
        const Extent extent = tensor.expert(expert);
        std::vector<char> loaded(tensor.stride);
        ggml_backend_tensor_get(tensor.tensor, loaded.data(), static_cast<std::size_t>(expert) * tensor.stride,
                                tensor.stride);
        if (read_plainly(file_.paths[extent.file], extent.offset, extent.size) != loaded) refuse();
    }
}

void SlotCache::allocate(Tensor& tensor, ggml_backend_buffer_type_t buffers) {
    ggml_tensor* const t = tensor.tensor;
    t->ne[tensor.dimension] = slots_;
    for (int outer = tensor.dimension + 1; outer < GGML_MAX_DIMS; ++outer)
        t->nb[outer] = t->nb[outer - 1] * static_cast<std::size_t>(t->ne[outer - 1]);
    const std::size_t size = ggml_backend_buft_get_alloc_size(buffers, t);
    const ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(buffers, size);
    tensor.owned.reset(buffer);
    if (buffer == nullptr) {
        tensor.file.restore(t);
        throw EngineError("no room for " + std::to_string(slots_) + " experts of '" + std::string(t->name) + "' (" +
                          std::to_string(size >> 20) + " MiB) in " + ggml_backend_buft_name(buffers) +
                          "; keep fewer resident");
    }
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (ggml_backend_buffer_is_host(buffer)) ask_for_huge_pages(buffer);
    ggml_backend_buffer_clear(buffer, 0);
    t->buffer = nullptr;
    t->data = t->extra = nullptr;
    const bool placed =
        ggml_backend_tensor_alloc(buffer, t, ggml_backend_buffer_get_base(buffer)) == GGML_STATUS_SUCCESS;
    tensor.slots.keep(t);
    tensor.file.restore(t);
    if (!placed)
        throw EngineError(std::string("'") + t->name + "' cannot be placed in " + ggml_backend_buft_name(buffers));
    buffer_bytes_ += size;
}

void SlotCache::use_slots() {
    for (const Layer& layer : layers_)
        for (const Tensor& tensor : layer.tensors) tensor.slots.restore(tensor.tensor);
}

void SlotCache::use_file() {
    for (const Layer& layer : layers_)
        for (const Tensor& tensor : layer.tensors) tensor.file.restore(tensor.tensor);
}

int SlotCache::find_slot(int layer, const std::function<bool(int expert)>& needed) const {
    const auto& contents = layers_[layer].expert_in;
    int found = -1;
    for (int slot = 0; slot < slots_; ++slot) {
        if (contents[slot] < 0) return slot;
        if (found < 0 && !needed(contents[slot])) found = slot;
    }
    return found;
}

void SlotCache::assign(Layer& layer, int expert, int slot) {
    if (layer.expert_in[slot] >= 0) layer.slot_of[layer.expert_in[slot]] = -1;
    layer.expert_in[slot] = expert;
    layer.slot_of[expert] = slot;
    loaded_bytes_ += layer.expert_bytes;
}

void SlotCache::read_ahead(int layer, int expert, char* bytes, IoPool::Batch& batch) {
    for (const Tensor& tensor : layers_[layer].tensors) {
        const Extent extent = tensor.expert(expert);
        pool_.run(
            batch, [this, extent, bytes](int thread) { std::memcpy(bytes, store_.read(extent, thread), extent.size); },
            true);
        bytes += tensor.stride;
    }
}

void SlotCache::put(int layer, int expert, int slot, const char* bytes) {
    assign(layers_[layer], expert, slot);
    for (const Tensor& tensor : layers_[layer].tensors) {
        copier_.copy(tensor.tensor, bytes, static_cast<std::size_t>(slot) * tensor.stride, tensor.stride);
        bytes += tensor.stride;
    }
}

void SlotCache::load(int layer, int expert, int slot, IoPool::Batch& batch) {
    Layer& in = layers_[layer];
    assign(in, expert, slot);
    const bool at_once = device_ == nullptr && !store_.waits() && in.expert_bytes <= kCopyAtOnce;
    for (const Tensor& tensor : in.tensors) {
        const auto copy = [this, &tensor, expert, slot](int thread) {
            const char* bytes = store_.read(tensor.expert(expert), thread);
            ggml_backend_tensor_set(tensor.tensor, bytes, static_cast<std::size_t>(slot) * tensor.stride,
                                    tensor.stride);
        };
        if (!tensor.small.empty())
            copier_.copy(tensor.tensor, tensor.small.data() + static_cast<std::size_t>(expert) * tensor.stride,
                         static_cast<std::size_t>(slot) * tensor.stride, tensor.stride);
        else if (at_once)
            copy(0);
        else
            pool_.run(batch, copy);
    }
}

int SlotCache::verify() const {
    int compared = 0;
    for (const Layer& layer : layers_) {
        for (int slot = 0; slot < slots_; ++slot) {
            if (layer.expert_in[slot] < 0) continue;
            for (const Tensor& tensor : layer.tensors) {
                const Extent extent = tensor.expert(layer.expert_in[slot]);
                std::vector<char> held(tensor.stride);
                ggml_backend_tensor_get(tensor.tensor, held.data(), static_cast<std::size_t>(slot) * tensor.stride,
                                        tensor.stride);
                if (held != read_plainly(file_.paths[extent.file], extent.offset, extent.size))
                    throw EngineError("layer " + std::to_string(layer.block) + ": slot " + std::to_string(slot) +
                                      " does not hold the file's bytes of expert " +
                                      std::to_string(layer.expert_in[slot]) + " (" + tensor.tensor->name + ")");
            }
            ++compared;
        }
    }
    return compared;
}

}  // namespace expertmiss::engine
