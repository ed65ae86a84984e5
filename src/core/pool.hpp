// The state of one pool of residents (definitions, "State"). Scope layer: one pool per layer, key = expert. Scope
// global: one pool, key = layer * E + expert. Residents keep their fields in slots, contiguous for the victim's scan;
// all other experts keep them by key. Nothing here allocates after construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eviction/counting.hpp"

namespace expertmiss {

struct QueueEntry {
    int key;
    int due;
};

struct Pool {
    Pool(int layers, int experts, int capacity, Counting counting);

    /// Back to a start: `order` inserted in turn, t before the first token. `first_use` (opt only) is [keys], as
    /// slot_next_use.
    void reset(const std::vector<int>& order, const std::int64_t* first_use = nullptr);
    /// The next token: t grows, half-life counts are rescaled when due.
    void begin_token();

    bool resident(int key) const { return slot_of[key] >= 0; }
    bool full() const { return size == capacity; }
    int slot_last(int slot) const { return static_cast<int>(slot_order[slot] >> kEnteredBits) - 1; }

    /// Puts a non-resident key into `slot` (a free one, or one just vacated).
    void insert(int key, int slot);
    void evict(int slot);
    /// Step 7 for one expert: recency and frequency.
    void touch(int key) {
        if (resident(key)) return touch_slot(slot_of[key]);
        last[key] = t;
        if (counting.who == Counted::everyone) freq[key] += increment;
    }
    void touch_slot(int slot) {
        slot_order[slot] = order_of(t, slot_order[slot]);
        if (counting.who != Counted::none) slot_freq[slot] += increment;
    }

    // Protection: slots that may be neither victim nor substitute, until the next call of begin_protection.
    void begin_protection() { ++stamp; }
    void protect(int slot) { protected_at[slot] = stamp; }
    bool is_protected(int slot) const { return protected_at[slot] == stamp; }
    /// [capacity] by slot; a slot is protected where it equals the stamp.
    const std::int64_t* protection() const { return protected_at.data(); }
    std::int64_t protection_stamp() const { return stamp; }

    void push(int key, int due);
    /// Removes a key from the queue if it is there.
    void unqueue(int key);

    int layers, experts, capacity;
    Counting counting;
    int t = -1;
    double increment = 1.0;  // what one request adds to freq at token t

    // by key
    std::vector<int> slot_of;                // -1: not resident
    std::vector<int> last;                   // of non-residents; 0 for residents, so that equal states have equal bytes
    std::vector<double> freq;                // of non-residents, where everyone is counted
    std::vector<double> mass;                // A
    std::vector<std::uint8_t> queued;        // in Q
    std::vector<std::uint8_t> was_resident;  // since the reset
    std::vector<std::uint8_t> evicted_unhit;  // at its last eviction
    std::vector<int> last_substituted;        // token, or kNever

    // by slot, the first `size` in use
    int size = 0;
    std::vector<int> slot_key;
    std::vector<double> slot_freq;
    std::vector<std::int64_t> slot_order;     // last + 1 above, entered below: sorts as step 9 says
    std::vector<std::int64_t> slot_next_use;  // opt only: minus the serial position of the next request
    std::vector<double> slot_score;           // scratch of lfru
    std::vector<int> slot_hit;                // 1 when hit since it entered; an int, because bytes may alias everything
    std::int64_t entered = 0;

    static constexpr int kEnteredBits = 32;
    static constexpr std::int64_t kEnteredMask = (std::int64_t{1} << kEnteredBits) - 1;
    static std::int64_t order_of(int last_, std::int64_t entered_) {
        return (static_cast<std::int64_t>(last_ + 1) << kEnteredBits) | (entered_ & kEnteredMask);
    }

    // Q in order of arrival: a ring of `keys` places, since a key is in it at most once
    std::vector<QueueEntry> ring;
    int queue_head = 0, queue_size = 0;
    const QueueEntry& queue_at(int index) const {
        return ring[static_cast<std::size_t>(queue_head + index) % ring.size()];
    }

    // cache_prior, by layer: sum and number of (max z - min z)
    std::vector<double> range_sum;
    std::vector<std::int64_t> range_steps;

    static constexpr int kNever = -1'000'000'000;

  private:
    void rescale();
    std::vector<std::int64_t> protected_at;  // by slot
    std::int64_t stamp = 0;
};

/// Everything but protections, which do not outlive a step.
void save(const Pool& pool, std::string& bytes);
/// Throws std::invalid_argument when the bytes are not those of a pool of this geometry.
void load(Pool& pool, const std::string& bytes, std::size_t& offset);

}  // namespace expertmiss
