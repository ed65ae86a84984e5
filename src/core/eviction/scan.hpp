// The victim among the slots of a pool: smallest score, ties to the smallest order, that is smallest `last`, then
// smallest `entered` (step 9; `entered` is unique in a pool, so the lowest id never has to decide). A few short passes
// over contiguous arrays of 64-bit words beat a list or a heap at the size of a layer's pool.
#pragma once

#include <cstdint>

#include "pool.hpp"

namespace expertmiss {

/// `respect`: leave out protected slots. Returns -1 when every slot is left out.
int smallest_order(const Pool& pool, bool respect);
/// `score` [size] by slot.
int smallest_score(const Pool& pool, const std::int64_t* score, bool respect);
/// The same for float64 scores, none negative.
int smallest_score(const Pool& pool, const double* score, bool respect);
/// Smallest `entered` alone.
int smallest_entered(const Pool& pool, bool respect);

}  // namespace expertmiss
