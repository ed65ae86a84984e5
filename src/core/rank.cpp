#include "rank.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "clones.hpp"
#include "math.hpp"
#include "weights.hpp"

namespace expertmiss {
namespace {

// Beyond this a bucket is sorted by comparisons instead of insertion.
constexpr int kLargeBucket = 24;

template <class Logit>
struct Extremes {
    Logit largest, smallest;
    bool finite;
};

/// A float's bits as an integer of the same order; what is not finite lies outside the finite numbers.
template <class Logit>
using Bits = std::conditional_t<sizeof(Logit) == 4, std::int32_t, std::int64_t>;

template <class Logit>
[[gnu::always_inline]] inline Bits<Logit> ordered_bits(Bits<Logit> bits) {
    return bits ^ ((bits >> (8 * sizeof(Logit) - 1)) & std::numeric_limits<Bits<Logit>>::max());
}

/// Widens a row and finds its extremes; integers, because GCC vectorises no minimum of floating-point numbers.
template <class Logit>
[[gnu::always_inline]] inline Extremes<Logit> widen(const Logit* z, double* wide, int count) {
    using Word = Bits<Logit>;
    Word largest = std::numeric_limits<Word>::min(), smallest = std::numeric_limits<Word>::max();
    for (int id = 0; id < count; ++id) {
        wide[id] = static_cast<double>(z[id]);
        const Word word = ordered_bits<Logit>(std::bit_cast<Word>(z[id]));
        largest = word > largest ? word : largest;
        smallest = word < smallest ? word : smallest;
    }
    const auto most = std::bit_cast<Logit>(ordered_bits<Logit>(largest));
    const auto least = std::bit_cast<Logit>(ordered_bits<Logit>(smallest));
    return {most, least, std::isfinite(most) && std::isfinite(least)};
}

EXPERTMISS_CLONES Extremes<float> widen_row(const float* z, double* wide, int count) { return widen(z, wide, count); }
EXPERTMISS_CLONES Extremes<double> widen_row(const double* z, double* wide, int count) { return widen(z, wide, count); }

/// Bucket of every logit; rounding keeps it monotone, so that a larger logit is never in a later bucket.
template <class Logit>
[[gnu::always_inline]] inline void find_buckets(const Logit* z, Logit largest, Logit width, int* bucket, int count) {
    for (int id = 0; id < count; ++id) bucket[id] = static_cast<int>((largest - z[id]) * width);
}

EXPERTMISS_CLONES void buckets_of(const float* z, float largest, float width, int* bucket, int count) {
    find_buckets(z, largest, width, bucket, count);
}
EXPERTMISS_CLONES void buckets_of(const double* z, double largest, double width, int* bucket, int count) {
    find_buckets(z, largest, width, bucket, count);
}

}  // namespace

Ranker::Ranker(const Model& model, int depth, bool tie_higher_id)
    : model_(model),
      depth_(depth),
      tie_higher_id_(tie_higher_id),
      z_(model.experts),
      scratch_(model.experts),
      allowed_(model.experts, 1),
      groups_(model.groups.count),
      ids_(model.experts),
      sorted_z_(model.experts),
      bucket_(model.experts),
      bucket_end_(model.experts) {
    scored_.reserve(static_cast<std::size_t>(model.experts));
}

template <class Logit>
Row Ranker::rank(const Logit* z, int layer, int ranks, bool lse) {
    const int experts = model_.experts;
    const Extremes<Logit> extremes = widen_row(z, z_.data(), experts);
    if (!extremes.finite)
        for (int id = 0; id < experts; ++id)
            if (!std::isfinite(z_[id])) throw NonFiniteLogit(id);

    const double* bias = model_.layer_bias(layer);
    const bool by_logit = bias == nullptr && !model_.has_groups();
    Row row{.ids = ids_.data(),
            .z32 = nullptr,
            .z64 = sorted_z_.data(),
            .lse = std::numeric_limits<double>::quiet_NaN(),
            .zmin = static_cast<double>(extremes.smallest),
            .depth = depth_};
    if (row.zmin == 0.0) row.zmin = *std::find(z_.begin(), z_.end(), 0.0);  // of zeros of both signs, the first
    if (lse || !by_logit) row.lse = log_sum_exp(static_cast<double>(extremes.largest));
    if (by_logit && !tie_higher_id_) {
        deal(z, extremes.largest, extremes.smallest);
        extend(ranks);
        return row;
    }

    const double* score = z_.data();
    if (!by_logit) {
        scratch_ = z_;
        gate_values(model_.gating, row.lse, scratch_.data(), experts);
        if (bias != nullptr) {
            for (int id = 0; id < experts; ++id) scratch_[id] += bias[id];
            score = scratch_.data();
        }
        if (model_.has_groups()) score_groups(scratch_.data());
    }
    sort_all(score);
    return row;
}

/// log sum exp over all E, added in ascending id.
double Ranker::log_sum_exp(double largest) {
    scratch_ = z_;
    gate_values(Gating::softmax, largest, scratch_.data(), model_.experts);
    double sum = 0.0;
    for (const double value : scratch_) sum += value;
    return largest + core_log(sum);
}

/// Deals the experts into buckets, best bucket first, ids rising within each.
template <class Logit>
void Ranker::deal(const Logit* z, Logit largest, Logit smallest) {
    const int experts = model_.experts;
    const Logit range = largest - smallest, width = static_cast<Logit>(experts - 1) / range;
    if (std::isfinite(range) && std::isfinite(width))
        buckets_of(z, largest, width, bucket_.data(), experts);
    else  // all equal, or out of the type's range
        std::fill(bucket_.begin(), bucket_.end(), 0);
    int* end = bucket_end_.data();
    std::fill_n(end, experts, 0);
    for (int id = 0; id < experts; ++id) ++end[bucket_[id]];
    int begin = 0;
    for (int bucket = 0; bucket < experts; ++bucket) {
        const int size = end[bucket];
        end[bucket] = begin;
        begin += size;
    }
    for (int id = 0; id < experts; ++id) {
        const int place = end[bucket_[id]]++;
        ids_[place] = static_cast<std::uint16_t>(id);
        sorted_z_[place] = z_[id];
    }
    ordered_ = 0;
}

void Ranker::extend(int ranks) {
    while (ordered_ < ranks) {
        const int begin = ordered_;
        const int end = bucket_end_[bucket_[ids_[begin]]];
        ordered_ = end;
        if (end - begin > kLargeBucket) {
            scored_.clear();
            for (int place = begin; place < end; ++place) scored_.push_back({sorted_z_[place], ids_[place]});
            std::sort(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) {
                return a.score > b.score || (a.score == b.score && a.id < b.id);
            });
            for (int place = begin; place < end; ++place) {
                sorted_z_[place] = scored_[place - begin].score;
                ids_[place] = static_cast<std::uint16_t>(scored_[place - begin].id);
            }
            continue;
        }
        for (int place = begin + 1; place < end; ++place) {  // stable, and ids rise: ties go to the lower id
            const double value = sorted_z_[place];
            const std::uint16_t id = ids_[place];
            int hole = place;
            for (; hole > begin && sorted_z_[hole - 1] < value; --hole) {
                sorted_z_[hole] = sorted_z_[hole - 1];
                ids_[hole] = ids_[hole - 1];
            }
            sorted_z_[hole] = value;
            ids_[hole] = id;
        }
    }
}

void Ranker::sort_all(const double* score) {
    scored_.clear();
    for (int id = 0; id < model_.experts; ++id)
        if (allowed_[id] != 0) scored_.push_back({score[id], id});
    const auto before = [&](const Scored& a, const Scored& b) {
        return a.score > b.score || (a.score == b.score && (tie_higher_id_ ? a.id > b.id : a.id < b.id));
    };
    const auto end = scored_.begin() + depth_;
    if (end != scored_.end()) std::nth_element(scored_.begin(), end, scored_.end(), before);
    std::sort(scored_.begin(), end, before);
    for (int rank = 0; rank < depth_; ++rank) {
        ids_[rank] = static_cast<std::uint16_t>(scored_[rank].id);
        sorted_z_[rank] = z_[scored_[rank].id];
    }
    ordered_ = depth_;
}

/// Marks the experts of the groups of largest score (max, or sum of the two largest s); ties to the lower group.
void Ranker::score_groups(const double* s) {
    const int count = model_.groups.count;
    const int size = model_.experts / count;
    for (int group = 0; group < count; ++group) {
        double first = -std::numeric_limits<double>::infinity(), second = first;
        for (int id = group * size; id < (group + 1) * size; ++id) {
            if (s[id] > first) {
                second = first;
                first = s[id];
            } else {
                second = std::max(second, s[id]);
            }
        }
        const bool pair = model_.groups.score == GroupScore::top2_sum && size > 1;
        groups_[group] = {pair ? first + second : first, group};
    }
    std::sort(groups_.begin(), groups_.end(), [](const Scored& a, const Scored& b) {
        return a.score > b.score || (a.score == b.score && a.id < b.id);
    });
    std::fill(allowed_.begin(), allowed_.end(), std::uint8_t{0});
    for (int place = 0; place < model_.groups.allowed; ++place)
        std::fill_n(allowed_.begin() + groups_[place].id * size, size, std::uint8_t{1});
}

template Row Ranker::rank<float>(const float*, int, int, bool);
template Row Ranker::rank<double>(const double*, int, int, bool);

}  // namespace expertmiss
