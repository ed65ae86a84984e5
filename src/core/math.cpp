#include "math.hpp"

#include <cmath>

namespace expertmiss {
namespace {

/// An unevaluated sum of two doubles, about 106 bits: enough to round 2^(j/h) to the nearest double.
struct DoubleDouble {
    double high, low;
};

DoubleDouble normalised(double a, double b) {
    const double sum = a + b;
    const double part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

DoubleDouble multiply(DoubleDouble a, DoubleDouble b) {
    const double product = a.high * b.high;
    const double error = std::fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high);
    return normalised(product, error);
}

DoubleDouble divide(DoubleDouble a, double by) {
    const double quotient = a.high / by;
    const double rest = std::fma(-quotient, by, a.high) + a.low;
    return normalised(quotient, rest / by);
}

DoubleDouble add_one(DoubleDouble a) {
    const DoubleDouble sum = normalised(1.0, a.high);
    return normalised(sum.high, sum.low + a.low);
}

}  // namespace

std::vector<double> half_life_table(int half_life) {
    constexpr DoubleDouble kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
    std::vector<double> table(static_cast<std::size_t>(half_life));
    for (int j = 0; j < half_life; ++j) {
        const DoubleDouble x = divide(multiply(kLn2, {static_cast<double>(j), 0.0}), half_life);
        DoubleDouble sum{1.0, 0.0};  // Taylor series of e^x, innermost term first; x < ln 2 makes 32 terms plenty
        for (int n = 32; n >= 1; --n) sum = add_one(divide(multiply(x, sum), n));
        table[static_cast<std::size_t>(j)] = sum.high;
    }
    return table;
}

}  // namespace expertmiss
