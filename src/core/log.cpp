#include "log.hpp"

#include <algorithm>

namespace expertmiss {

void CallLog::resize(std::size_t rows) {
    document.resize(rows);
    t.resize(rows);
    layer.resize(rows);
    rank.resize(rows);
    expert.resize(rows);
    verdict.resize(rows);
    substitute.resize(rows);
    victim.resize(rows);
    weight.resize(rows);
    executed_weight.resize(rows);
}

void CallLog::write(std::size_t at, int document_, int layer_, const StepBase& step) {
    for (int call = 0; call < step.model.top_k; ++call, ++at) {
        const int true_rank = step.calls.rank[call];
        document[at] = document_;
        t[at] = step.pool.t;
        layer[at] = static_cast<std::int16_t>(layer_);
        rank[at] = static_cast<std::int16_t>(true_rank);
        expert[at] = static_cast<std::uint16_t>(step.view.expert(true_rank));
        verdict[at] = static_cast<std::uint8_t>(step.calls.verdict[call]);
        substitute[at] = step.calls.substitute[call];
        victim[at] = step.calls.victim[call];
        weight[at] = step.view.weight(true_rank);
        executed_weight[at] = step.calls.weight[call];
    }
}

void LandingLog::append(int document_, int first_layer, std::int64_t token_, const StepBase& step) {
    for (const Landed& one : step.landed) {
        document.push_back(document_);
        t.push_back(step.pool.t);
        layer.push_back(static_cast<std::int16_t>(first_layer + one.key / step.model.experts));
        expert.push_back(static_cast<std::uint16_t>(one.key % step.model.experts));
        victim.push_back(one.victim);
        token.push_back(token_);
    }
}

void LandingLog::append(const LandingLog& other, std::size_t row) {
    document.push_back(other.document[row]);
    t.push_back(other.t[row]);
    layer.push_back(other.layer[row]);
    expert.push_back(other.expert[row]);
    victim.push_back(other.victim[row]);
    token.push_back(other.token[row]);
}

LandingLog merge(const std::vector<LandingLog>& pools) {
    struct Where {
        std::int64_t token;
        std::size_t pool, row;
    };
    std::vector<Where> places;
    for (std::size_t pool = 0; pool < pools.size(); ++pool)
        for (std::size_t row = 0; row < pools[pool].size(); ++row)
            places.push_back({pools[pool].token[row], pool, row});
    std::stable_sort(places.begin(), places.end(), [](const Where& a, const Where& b) { return a.token < b.token; });
    LandingLog merged;
    for (const Where& place : places) merged.append(pools[place.pool], place.row);
    return merged;
}

}  // namespace expertmiss
