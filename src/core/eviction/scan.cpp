#include "eviction/scan.hpp"

#include <bit>
#include <limits>

#include "clones.hpp"

namespace expertmiss {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

/// Plain pointers and words of one width, so that the loops vectorise.
struct Slots {
    Slots(const Pool& pool, bool respect)
        : order(pool.slot_order.data()),
          protected_at(pool.protection()),
          stamp(respect ? pool.protection_stamp() : -1),
          size(pool.size) {}
    const std::int64_t* order;
    const std::int64_t* protected_at;
    std::int64_t stamp;
    int size;
};

/// `condition ? yes : no` without the branch that GCC makes of it and then cannot vectorise.
[[gnu::always_inline]] inline std::int64_t choose(bool condition, std::int64_t yes, std::int64_t no) {
    const std::int64_t mask = -static_cast<std::int64_t>(condition);
    return (yes & mask) | (no & ~mask);
}

/// The smallest value of an unprotected slot.
template <class Value>
[[gnu::always_inline]] inline std::int64_t smallest(const Slots& slots, Value value) {
    std::int64_t best = kLargest;
    for (int slot = 0; slot < slots.size; ++slot) {
        const std::int64_t counted = choose(slots.protected_at[slot] == slots.stamp, kLargest, value(slot));
        best = counted < best ? counted : best;
    }
    return best;
}

/// The slot of an order, which is unique; -1 for kLargest.
[[gnu::always_inline]] inline int slot_of_order(const Slots& slots, std::int64_t order) {
    std::int64_t found = -1;
    for (std::int64_t slot = 0; slot < slots.size; ++slot) found = slots.order[slot] == order ? slot : found;
    return static_cast<int>(found);
}

template <class Score>
[[gnu::always_inline]] inline int scan(const Slots& slots, Score score) {
    const std::int64_t best = smallest(slots, score);
    const std::int64_t order =
        smallest(slots, [&](int slot) { return choose(score(slot) == best, slots.order[slot], kLargest); });
    return slot_of_order(slots, order);
}

EXPERTMISS_CLONES int scan_order(const Slots& slots) {
    return slot_of_order(slots, smallest(slots, [&](int slot) { return slots.order[slot]; }));
}

EXPERTMISS_CLONES int scan_words(const Slots& slots, const std::int64_t* score) {
    return scan(slots, [=](int slot) { return score[slot]; });
}

// Float64 numbers that are not negative compare as their bits do.
EXPERTMISS_CLONES int scan_doubles(const Slots& slots, const double* score) {
    return scan(slots, [=](int slot) { return std::bit_cast<std::int64_t>(score[slot]); });
}

EXPERTMISS_CLONES int scan_entered(const Slots& slots) {
    return scan(slots, [&](int slot) { return slots.order[slot] & Pool::kEnteredMask; });
}

}  // namespace

int smallest_order(const Pool& pool, bool respect) { return scan_order(Slots(pool, respect)); }
int smallest_score(const Pool& pool, const std::int64_t* score, bool respect) {
    return scan_words(Slots(pool, respect), score);
}
int smallest_score(const Pool& pool, const double* score, bool respect) {
    return scan_doubles(Slots(pool, respect), score);
}
int smallest_entered(const Pool& pool, bool respect) { return scan_entered(Slots(pool, respect)); }

}  // namespace expertmiss
