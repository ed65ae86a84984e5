#include "weights.hpp"

#include "clones.hpp"

namespace expertmiss {
namespace {

EXPERTMISS_CLONES void exponentials(double shift, double* values, int count) {
    for (int i = 0; i < count; ++i) values[i] = core_exp(values[i] - shift);
}

}  // namespace

void gate_values(Gating gating, double shift, double* values, int count) {
    if (gating == Gating::softmax)
        exponentials(shift, values, count);
    else
        for (int i = 0; i < count; ++i) values[i] = sigmoid(values[i]);
}

}  // namespace expertmiss
