#include <nanobind/nanobind.h>

#include "bind.hpp"
#include "source_hash.hpp"

namespace nb = nanobind;

NB_MODULE(_core, m) {
    m.doc() = "The policy core of expertmiss; see src/core and the type stub _core.pyi.";
    m.def("source_hash", [] { return EXPERTMISS_SOURCE_HASH; });
    expertmiss::bind_functions(m);
    expertmiss::bind_simulate(m);
    expertmiss::bind_stepper(m);
}
