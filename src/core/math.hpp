// Exponential and logarithm with the same bits on every machine, compiler and vector width: plain IEEE operations in a
// fixed order (libm's versions differ between releases and processors). The build forbids contraction to fma.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace expertmiss {

namespace constants {
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts; the first has 33 significant bits, so that n * kLn2High is exact for |n| < 2^20.
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kRoundToInteger = 0x1.8p52;  // adding and subtracting it rounds to an integer
}  // namespace constants

/// 2^n for -1022 <= n <= 1023.
inline double power_of_two(std::int64_t n) { return std::bit_cast<double>((n + 1023) << 52); }

/// e^x within 1 ulp; 0 below the subnormals, infinity above the range, NaN for NaN. Without branches, so that loops of
/// it vectorise. Reduction x = n ln 2 + r with |r| <= ln 2 / 2, Taylor polynomial of degree 13 (truncation 4e-18).
inline double core_exp(double x) {
    using namespace constants;
    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    const double shifted = x * kLog2E + kRoundToInteger;
    const double whole = shifted - kRoundToInteger;
    const std::int64_t n = std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kRoundToInteger);
    const double r = (x - whole * kLn2High) - whole * kLn2Low;

    const double r2 = r * r;
    const double r4 = r2 * r2;
    const double low = (1.0 / 2 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
    const double middle = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
    const double high = (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800.0));
    const double polynomial = 1.0 + (r + r2 * (low + r4 * (middle + r4 * high)));
    // Two factors, because 2^n itself leaves the range of normal numbers at both ends.
    const std::int64_t half = n >> 1;
    return polynomial * power_of_two(half) * power_of_two(n - half);
}

/// ln x of a positive normal x within 2 ulp: x = 2^k f with f in [sqrt 1/2, sqrt 2), ln f = 2 artanh((f - 1) / (f +
/// 1)).
inline double core_log(double x) {
    using namespace constants;
    const auto bits = std::bit_cast<std::int64_t>(x);
    std::int64_t k = (bits >> 52) - 1023;
    double f = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
    if (f > 0x1.6a09e667f3bcdp+0) {
        f *= 0.5;
        k += 1;
    }
    const double u = (f - 1.0) / (f + 1.0);
    const double u2 = u * u;
    double series = 0.0;
    for (int n = 23; n >= 3; n -= 2) series = (series + 1.0 / n) * u2;
    const auto exponent = static_cast<double>(k);
    return exponent * kLn2High + (2.0 * u + (2.0 * u * series + exponent * kLn2Low));
}

/// T[j] = the float64 nearest to 2^(j/h), j < h (half-life counts).
std::vector<double> half_life_table(int half_life);

}  // namespace expertmiss
