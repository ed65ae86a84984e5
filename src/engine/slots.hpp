// The fast tier: every expert tensor of the model is re-pointed at a buffer that holds only some experts, its slots.
//
// The model keeps its tensors; what changes is where their data lies and how many experts they count. The originals
// (the mapped file) stay, so that prompt batches can run on them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "copier.hpp"
#include "ggml-backend.h"
#include "host_memory.hpp"
#include "io_pool.hpp"
#include "router_graph.hpp"
#include "store.hpp"

namespace expertmiss::engine {

class SlotCache {
  public:
    /// Allocates `slots` slots a layer on `device` (null: the processor), empty, and checks that the loaded tensors
    /// hold the file's bytes (a repacked tensor does not). Throws EngineError. The model must outlive this.
    SlotCache(const RouterGraph& graph, const GgufFile& file, Store& store, IoPool& pool, ggml_backend_dev_t device,
              int slots);
    ~SlotCache();
    SlotCache(const SlotCache&) = delete;
    SlotCache& operator=(const SlotCache&) = delete;

    /// Where the model's expert tensors point from now on. Graphs built before must not run again.
    void use_slots();
    void use_file();

    ggml_backend_dev_t device() const { return device_; }  // null: the processor
    int slots() const { return slots_; }
    int slot_of(int layer, int expert) const { return layers_[layer].slot_of[expert]; }
    int expert_in(int layer, int slot) const { return layers_[layer].expert_in[slot]; }
    /// The first slot whose content `needed` does not claim; -1 none. Empty slots come first.
    int find_slot(int layer, const std::function<bool(int expert)>& needed) const;

    /// Reads an expert into a slot, in place of what was there; the bytes are there once the batch has been waited for,
    /// and `settle` called.
    void load(int layer, int expert, int slot, IoPool::Batch& batch);

    /// Reads an expert into host memory of `bytes_of(layer)` bytes, in the background.
    void read_ahead(int layer, int expert, char* bytes, IoPool::Batch& batch);
    /// Puts an expert that was read ahead into a slot, in place of what was there. `bytes` must stay until `settle`.
    void put(int layer, int expert, int slot, const char* bytes);
    /// Waits for the copies that `put` and `load` have begun.
    void settle() { copier_.wait(); }
    /// Whether reads wait on a disk, so that reading ahead saves anything.
    bool reads_wait() const { return store_.waits(); }

    std::uint64_t bytes_of(int layer) const { return layers_[layer].expert_bytes; }
    std::uint64_t loaded_bytes() const { return loaded_bytes_; }
    std::uint64_t buffer_bytes() const { return buffer_bytes_; }

    /// Compares every slot with the file, read past this class by ordinary reads; returns the number of slots compared.
    /// Throws EngineError that names the first slot with other bytes.
    int verify() const;

  private:
    struct Place {  // where a tensor points
        void* data;
        void* extra;
        ggml_backend_buffer_t buffer;
        std::int64_t ne[GGML_MAX_DIMS];
        std::size_t nb[GGML_MAX_DIMS];
        void keep(const ggml_tensor* tensor);
        void restore(ggml_tensor* tensor) const;
    };
    struct Tensor {
        ggml_tensor* tensor;
        int dimension;       // that counts experts
        std::size_t stride;  // bytes of one expert
        Extent extent;       // of the whole tensor
        Place file, slots;
        BufferHandle owned;
        std::vector<char> small;  // all bytes of a bias or factor: too small to be worth a read of its own
        Extent expert(int id) const {
            return {extent.file, extent.offset + static_cast<std::uint64_t>(id) * stride, stride};
        }
    };
    struct Layer {
        int block;
        std::vector<Tensor> tensors;
        std::vector<int> slot_of;    // by expert; -1 none
        std::vector<int> expert_in;  // by slot; -1 empty
        std::uint64_t expert_bytes = 0;
    };

    void assign(Layer& layer, int expert, int slot);
    void check_bytes(const Layer& layer, const Tensor& tensor, int experts) const;
    void allocate(Tensor& tensor, ggml_backend_buffer_type_t buffers);

    const GgufFile& file_;
    Store& store_;
    IoPool& pool_;
    const int slots_;
    const ggml_backend_dev_t device_;
    std::vector<Layer> layers_;
    Copier copier_;  // goes first: its copies end before the slots do
    std::uint64_t loaded_bytes_ = 0, buffer_bytes_ = 0;
};

}  // namespace expertmiss::engine
