#include <limits>

#include "arrays.hpp"
#include "bind.hpp"

namespace expertmiss {
namespace {

template <class T, class Get>
nb::object column(const std::vector<Counters>& counters, std::size_t rows, std::size_t columns, Get get) {
    std::vector<T> values;
    values.reserve(counters.size());
    for (const Counters& one : counters) values.push_back(get(one));
    return columns > 0 ? to_numpy(std::move(values), {rows, columns}) : to_numpy(std::move(values));
}

}  // namespace

nb::dict counters_to_dict(const std::vector<Counters>& counters, std::size_t rows, std::size_t columns, int top_k,
                          bool kl) {
    nb::dict result;
    const std::pair<const char*, std::int64_t Counters::*> integers[] = {
        {"tokens", &Counters::tokens},
        {"calls", &Counters::calls},
        {"hits", &Counters::hits},
        {"fetches", &Counters::fetches},
        {"substituted", &Counters::substituted},
        {"dropped", &Counters::dropped},
        {"fallback_fetches", &Counters::fallback_fetches},
        {"fallback_drops", &Counters::fallback_drops},
        {"landings", &Counters::landings},
        {"evictions", &Counters::evictions},
        {"wasted", &Counters::wasted},
        {"compulsory", &Counters::compulsory},
        {"collision", &Counters::collision},
        {"capacity", &Counters::capacity},
        {"reswaps", &Counters::reswaps},
        {"past_depth", &Counters::past_depth}};
    for (const auto& [name, field] : integers)
        result[name] = column<std::int64_t>(counters, rows, columns, [&](const Counters& one) { return one.*field; });
    const std::pair<const char*, double Counters::*> reals[] = {
        {"mass", &Counters::mass}, {"dropped_mass", &Counters::dropped_mass}, {"heaviest", &Counters::heaviest}};
    for (const auto& [name, field] : reals)
        result[name] = column<double>(counters, rows, columns, [&](const Counters& one) { return one.*field; });
    result["agreement"] = column<double>(counters, rows, columns,
                                         [&](const Counters& one) { return static_cast<double>(one.kept) / top_k; });
    result["kl"] = column<double>(counters, rows, columns, [&](const Counters& one) {
        return kl ? one.kl : std::numeric_limits<double>::quiet_NaN();
    });
    return result;
}

nb::dict log_to_dict(CallLog&& calls, LandingLog&& landings) {
    nb::dict rows;
    rows["document"] = to_numpy(std::move(calls.document));
    rows["t"] = to_numpy(std::move(calls.t));
    rows["layer"] = to_numpy(std::move(calls.layer));
    rows["rank"] = to_numpy(std::move(calls.rank));
    rows["expert"] = to_numpy(std::move(calls.expert));
    rows["verdict"] = to_numpy(std::move(calls.verdict));
    rows["substitute"] = to_numpy(std::move(calls.substitute));
    rows["victim"] = to_numpy(std::move(calls.victim));
    rows["weight"] = to_numpy(std::move(calls.weight));
    rows["executed_weight"] = to_numpy(std::move(calls.executed_weight));
    calls = CallLog{};
    nb::dict landed;
    landed["document"] = to_numpy(std::move(landings.document));
    landed["t"] = to_numpy(std::move(landings.t));
    landed["layer"] = to_numpy(std::move(landings.layer));
    landed["expert"] = to_numpy(std::move(landings.expert));
    landed["victim"] = to_numpy(std::move(landings.victim));
    landings = LandingLog{};
    nb::dict log;
    log["calls"] = rows;
    log["landings"] = landed;
    return log;
}

nb::object order_to_numpy(const std::vector<std::vector<int>>& orders, int experts) {
    std::vector<std::uint16_t> pairs;
    for (std::size_t pool = 0; pool < orders.size(); ++pool)
        for (const int key : orders[pool]) {
            // One pool per layer holds keys below E; the only pool of scope global holds layer * E + expert.
            const int layer = static_cast<int>(pool) + key / experts;
            pairs.push_back(static_cast<std::uint16_t>(layer));
            pairs.push_back(static_cast<std::uint16_t>(key % experts));
        }
    const std::size_t rows = pairs.size() / 2;
    return to_numpy(std::move(pairs), {rows, 2});
}

}  // namespace expertmiss
