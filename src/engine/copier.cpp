#include "copier.hpp"

#include <string>

#include "error.hpp"

namespace expertmiss::engine {

Copier::Copier(ggml_backend_dev_t device) {
    if (device == nullptr) return;
    stream_.reset(ggml_backend_dev_init(device, nullptr));
    if (stream_ == nullptr)
        throw EngineError(std::string("device '") + ggml_backend_dev_name(device) + "' cannot be opened for copies");
}

void Copier::copy(ggml_tensor* tensor, const char* bytes, std::size_t offset, std::size_t size) {
    if (stream_ == nullptr) return ggml_backend_tensor_set(tensor, bytes, offset, size);
    ggml_backend_tensor_set_async(stream_.get(), tensor, bytes, offset, size);
    under_way_ = true;
}

void Copier::wait() {
    if (under_way_) ggml_backend_synchronize(stream_.get());
    under_way_ = false;
}

}  // namespace expertmiss::engine
