#include "times.hpp"

#include <numeric>
#include <utility>

namespace expertmiss::engine {

std::int64_t TokenTimes::wall() const { return std::accumulate(parts.begin(), parts.end(), std::int64_t{0}); }

void TokenTimes::add(const TokenTimes& other) {
    for (std::size_t part = 0; part < kParts; ++part) parts[part] += other.parts[part];
    fetch_bytes += other.fetch_bytes;
    admission_bytes += other.admission_bytes;
}

Part TokenClock::change(Part part) {
    const auto now = std::chrono::steady_clock::now();
    token.parts[static_cast<std::size_t>(part_)] +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - since_).count();
    since_ = now;
    return std::exchange(part_, part);
}

void TokenClock::begin() {
    change(Part::compute);
    token = TokenTimes{};
}

void TokenClock::end() {
    change(Part::compute);
    total.add(token);
    tokens.push_back(token);
}

}  // namespace expertmiss::engine
