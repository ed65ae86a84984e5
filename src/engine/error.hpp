// What the engine refuses: one sentence that says what is wrong, where, and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace expertmiss::engine {

struct EngineError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace expertmiss::engine
