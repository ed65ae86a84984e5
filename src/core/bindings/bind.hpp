// The parts of the Python module; expertmiss/_core.pyi documents what they bind.
#pragma once

#include <nanobind/nanobind.h>

#include "log.hpp"

namespace expertmiss {

void bind_functions(nanobind::module_& m);
void bind_simulate(nanobind::module_& m);
void bind_stepper(nanobind::module_& m);

/// The names behind the numbers of Verdict.
inline constexpr const char* kVerdictNames[] = {"hit",  "fetch",          "substitute",
                                                "drop", "fallback_fetch", "fallback_drop"};

/// {"calls": {...}, "landings": {...}}; leaves the logs empty.
nanobind::dict log_to_dict(CallLog&& calls, LandingLog&& landings);
/// Counters [rows, columns] as a dict of arrays of that shape; columns = 0: of shape [rows].
nanobind::dict counters_to_dict(const std::vector<Counters>& counters, std::size_t rows, std::size_t columns, int top_k,
                                bool kl);
/// Insertion order as uint16 pairs (layer, expert), pool by pool.
nanobind::object order_to_numpy(const std::vector<std::vector<int>>& orders, int experts);

}  // namespace expertmiss
