#include "pool.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "math.hpp"

namespace expertmiss {
namespace {

// Half-life counts are rescaled every kRescalePeriod half-lives by 2^-kRescalePeriod, far from overflow at 2^1024.
constexpr int kRescalePeriod = 512;
constexpr int kNegligibleExponent = -1000;

}  // namespace

Pool::Pool(int layers_, int experts_, int capacity_, Counting counting_)
    : layers(layers_), experts(experts_), capacity(capacity_ * layers_), counting(std::move(counting_)) {
    const auto keys = static_cast<std::size_t>(layers * experts);
    const auto slots = static_cast<std::size_t>(capacity);
    slot_of.resize(keys);
    last.resize(keys);
    freq.resize(keys);
    mass.resize(keys);
    queued.resize(keys);
    was_resident.resize(keys);
    evicted_unhit.resize(keys);
    last_substituted.resize(keys);
    slot_key.resize(slots);
    slot_freq.resize(slots);
    slot_order.resize(slots);
    slot_next_use.resize(slots);
    slot_score.resize(slots);
    slot_hit.resize(slots);
    protected_at.resize(slots);
    ring.resize(keys);
    range_sum.resize(static_cast<std::size_t>(layers));
    range_steps.resize(static_cast<std::size_t>(layers));
}

void Pool::reset(const std::vector<int>& order, const std::int64_t* first_use) {
    std::fill(slot_of.begin(), slot_of.end(), -1);
    std::fill(last.begin(), last.end(), -1);
    std::fill(freq.begin(), freq.end(), 0.0);
    std::fill(mass.begin(), mass.end(), 0.0);
    std::fill(queued.begin(), queued.end(), std::uint8_t{0});
    std::fill(was_resident.begin(), was_resident.end(), std::uint8_t{0});
    std::fill(evicted_unhit.begin(), evicted_unhit.end(), std::uint8_t{0});
    std::fill(last_substituted.begin(), last_substituted.end(), kNever);
    std::fill(range_sum.begin(), range_sum.end(), 0.0);
    std::fill(range_steps.begin(), range_steps.end(), 0);
    t = -1;
    increment = 1.0;
    size = 0;
    entered = 0;
    queue_head = queue_size = 0;
    for (const int key : order) {
        insert(key, size++);
        if (first_use != nullptr) slot_next_use[size - 1] = first_use[key];
    }
}

void Pool::begin_token() {
    ++t;
    const int h = counting.half_life;
    if (h == 0) return;
    if (t > 0 && t % (h * kRescalePeriod) == 0) rescale();
    increment = power_of_two(t / h % kRescalePeriod) * counting.table[static_cast<std::size_t>(t % h)];
}

void Pool::rescale() {
    // The increment at this token is 1, so counts are compared with 2^-1000 itself.
    const auto shrink = [](double& count) {
        count *= power_of_two(-kRescalePeriod);
        if (count < power_of_two(kNegligibleExponent)) count = 0.0;
    };
    std::for_each(freq.begin(), freq.end(), shrink);
    std::for_each(slot_freq.begin(), slot_freq.begin() + size, shrink);
}

void Pool::insert(int key, int slot) {
    if (entered > kEnteredMask) throw std::logic_error("more insertions since the reset than a pool can number");
    if (slot_of[key] >= 0)
        throw std::logic_error("an expert that is resident was inserted again (duplicate ids in a row?)");
    slot_of[key] = slot;
    slot_key[slot] = key;
    slot_freq[slot] = counting.who == Counted::everyone ? freq[key] : 0.0;
    slot_order[slot] = order_of(last[key], entered++);
    slot_hit[slot] = 0;
    was_resident[key] = 1;
    last[key] = 0;
    freq[key] = 0.0;
}

void Pool::evict(int slot) {
    const int key = slot_key[slot];
    slot_of[key] = -1;
    last[key] = slot_last(slot);
    if (counting.who == Counted::everyone) freq[key] = slot_freq[slot];
    evicted_unhit[key] = slot_hit[slot] == 0;
}

void Pool::push(int key, int due) {
    ring[static_cast<std::size_t>(queue_head + queue_size) % ring.size()] = {key, due};
    ++queue_size;
    queued[key] = 1;
}

void Pool::unqueue(int key) {
    if (queued[key] == 0) return;
    queued[key] = 0;
    const auto places = ring.size();
    const auto head = static_cast<std::size_t>(queue_head);
    int index = 0;
    while (queue_at(index).key != key) ++index;
    for (; index > 0; --index)  // the head moves up into the gap: removals are mostly near it
        ring[(head + static_cast<std::size_t>(index)) % places] =
            ring[(head + static_cast<std::size_t>(index) - 1) % places];
    queue_head = static_cast<int>((head + 1) % places);
    --queue_size;
}

namespace {

template <class T>
void write(std::string& bytes, const T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

template <class T>
void read(const std::string& bytes, std::size_t& offset, T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes.size() - offset < count * sizeof(T)) throw std::invalid_argument("snapshot: truncated");
    std::memcpy(values, bytes.data() + offset, count * sizeof(T));
    offset += count * sizeof(T);
}

/// Calls `visit(pointer, count)` for every array of a pool, in the order of the snapshot.
template <class PoolType, class Visit>
void each_array(PoolType& pool, Visit visit) {
    const auto keys = pool.slot_of.size();
    const auto used = static_cast<std::size_t>(pool.size);
    visit(pool.slot_of.data(), keys);
    visit(pool.last.data(), keys);
    visit(pool.freq.data(), keys);
    visit(pool.mass.data(), keys);
    visit(pool.queued.data(), keys);
    visit(pool.was_resident.data(), keys);
    visit(pool.evicted_unhit.data(), keys);
    visit(pool.last_substituted.data(), keys);
    visit(pool.slot_key.data(), used);
    visit(pool.slot_freq.data(), used);
    visit(pool.slot_order.data(), used);
    visit(pool.slot_hit.data(), used);
    visit(pool.range_sum.data(), pool.range_sum.size());
    visit(pool.range_steps.data(), pool.range_steps.size());
}

struct Header {
    int layers, experts, capacity, half_life, counted, t, size, queue_size;
    std::int64_t entered;
    double increment;
};

}  // namespace

void save(const Pool& pool, std::string& bytes) {
    const Header header{pool.layers,
                        pool.experts,
                        pool.capacity,
                        pool.counting.half_life,
                        static_cast<int>(pool.counting.who),
                        pool.t,
                        pool.size,
                        pool.queue_size,
                        pool.entered,
                        pool.increment};
    write(bytes, &header, 1);
    each_array(pool, [&](const auto* values, std::size_t count) { write(bytes, values, count); });
    for (int i = 0; i < pool.queue_size; ++i) write(bytes, &pool.queue_at(i), 1);
}

void load(Pool& pool, const std::string& bytes, std::size_t& offset) {
    Header header;
    read(bytes, offset, &header, 1);
    if (header.layers != pool.layers || header.experts != pool.experts || header.capacity != pool.capacity ||
        header.half_life != pool.counting.half_life || header.counted != static_cast<int>(pool.counting.who) ||
        header.size < 0 || header.size > pool.capacity || header.queue_size < 0 ||
        static_cast<std::size_t>(header.queue_size) > pool.ring.size())
        throw std::invalid_argument("snapshot: of another geometry, eviction or capacity");
    pool.t = header.t;
    pool.size = header.size;
    pool.entered = header.entered;
    pool.increment = header.increment;
    each_array(pool, [&](auto* values, std::size_t count) { read(bytes, offset, values, count); });
    pool.queue_head = 0;
    pool.queue_size = header.queue_size;
    read(bytes, offset, pool.ring.data(), static_cast<std::size_t>(header.queue_size));
}

}  // namespace expertmiss
