// Seeded defects. The agreement gates between simulator, emulator and engine must catch each of them; nothing else sets
// one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace expertmiss {

struct Mutants {
    int landing_late = 0;          // admissions become visible one token late
    bool tie_higher_id = false;    // equal scores rank the higher id first
    bool no_shield = false;        // fetches may evict experts that this step needs
    bool update_executed = false;  // recency and frequency follow the executed experts
    bool stale_mass = false;       // a fetch leaves A as it was

    bool any() const { return landing_late != 0 || tie_higher_id || no_shield || update_executed || stale_mass; }
};

inline constexpr std::array<std::string_view, 5> kMutantNames = {"late_landing", "tie_higher_id", "no_shield",
                                                                 "update_executed", "stale_mass"};

inline Mutants make_mutant(std::string_view name) {
    if (std::find(kMutantNames.begin(), kMutantNames.end(), name) == kMutantNames.end())
        throw std::invalid_argument("unknown mutant '" + std::string(name) + "'");
    return {.landing_late = name == "late_landing" ? 1 : 0,
            .tie_higher_id = name == "tie_higher_id",
            .no_shield = name == "no_shield",
            .update_executed = name == "update_executed",
            .stale_mass = name == "stale_mass"};
}

/// Turns every run of equal scores round, the same float32 logits as the trace stores them.
inline void reverse_ties(std::uint16_t* ids, const float* z, int depth) {
    for (int start = 0; start < depth;) {
        int end = start + 1;
        while (end < depth && z[end] == z[start]) ++end;
        std::reverse(ids + start, ids + end);
        start = end;
    }
}

}  // namespace expertmiss
