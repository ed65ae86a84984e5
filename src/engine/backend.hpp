// llama.cpp and ggml as libraries: start-up, their messages, devices.
#pragma once

#include <string>

#include "ggml-backend.h"

namespace expertmiss::engine {

/// Once a process; keeps llama.cpp silent but for the line that last_log_line returns. CUDA graphs are off from then
/// on, for stock llama.cpp in this process, too: a recorded graph would run on with the pointers that it was recorded
/// with.
void start_backend();
/// The last warning or error that llama.cpp reported.
std::string last_log_line();

/// Null for `cpu`; a device by ggml's name (CUDA0); rpc:HOST:PORT. Throws EngineError with the names of devices there
/// are.
ggml_backend_dev_t find_device(const std::string& name);

}  // namespace expertmiss::engine
