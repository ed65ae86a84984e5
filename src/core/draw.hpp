// Draws without generator state: a hash of where the draw is made.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace expertmiss {

/// SplitMix64's output function.
inline std::uint64_t finalise(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

/// finalise(seed), then finalise(h ^ v) for every value; negative values count as their two's complement.
inline std::uint64_t draw(std::uint64_t seed, std::initializer_list<std::int64_t> values) {
    std::uint64_t h = finalise(seed);
    for (const std::int64_t value : values) h = finalise(h ^ static_cast<std::uint64_t>(value));
    return h;
}

}  // namespace expertmiss
