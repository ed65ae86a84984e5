// Copies from host memory into slots, begun by the thread that decodes. On a device they go through a backend (a
// stream) of their own, never the model's, and are under way while the model computes, until they are waited for; ggml
// copies at once where a device cannot do that. Only slots that the running graph does not use may be written.
#pragma once

#include <memory>

#include "ggml-backend.h"

namespace expertmiss::engine {

class Copier {
  public:
    /// Null: the processor.
    explicit Copier(ggml_backend_dev_t device);
    ~Copier() { wait(); }
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

    /// `bytes` must stay as they are until `wait`.
    void copy(ggml_tensor* tensor, const char* bytes, std::size_t offset, std::size_t size);
    void wait();

  private:
    struct FreeBackend {
        void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
    };
    std::unique_ptr<ggml_backend, FreeBackend> stream_;  // null: copies are made at once
    bool under_way_ = false;
};

}  // namespace expertmiss::engine
