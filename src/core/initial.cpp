#include "initial.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "draw.hpp"

namespace expertmiss {
namespace {

struct Ranked {
    std::uint64_t value;  // count or hash, rising
    int layer, expert;
};

}  // namespace

std::vector<std::vector<int>> initial_orders(const Model& model, const Policy& policy, int capacity,
                                             const std::int64_t* counts, std::uint64_t seed) {
    const bool global = policy.scope == Scope::global;
    std::vector<std::vector<int>> orders(global ? 1 : static_cast<std::size_t>(model.layers));
    if (policy.initial == Initial::cold) return orders;
    const bool warm = policy.initial == Initial::warm;
    if (warm && counts == nullptr)
        throw std::invalid_argument("policy '" + policy.name +
                                    "': initial warm needs the request counts of the calibration split");

    // warm: (count rising, layer falling, id falling); random: (h, layer, id rising).
    const auto before = [&](const Ranked& a, const Ranked& b) {
        if (a.value != b.value) return a.value < b.value;
        return warm ? std::tie(b.layer, b.expert) < std::tie(a.layer, a.expert)
                    : std::tie(a.layer, a.expert) < std::tie(b.layer, b.expert);
    };
    std::vector<Ranked> inserted;
    for (int layer = 0; layer < model.layers; ++layer) {
        std::vector<Ranked> experts;
        for (int expert = 0; expert < model.experts; ++expert) {
            const auto value =
                warm ? static_cast<std::uint64_t>(counts[static_cast<std::size_t>(layer) * model.experts + expert])
                     : draw(seed, {layer, expert});
            experts.push_back({value, layer, expert});
        }
        std::sort(experts.begin(), experts.end(), before);
        experts.erase(experts.begin(), experts.end() - capacity);
        if (!global)
            for (const Ranked& one : experts) orders[layer].push_back(one.expert);
        inserted.insert(inserted.end(), experts.begin(), experts.end());
    }
    if (global) {
        std::sort(inserted.begin(), inserted.end(), before);
        for (const Ranked& one : inserted) orders[0].push_back(one.layer * model.experts + one.expert);
    }
    return orders;
}

}  // namespace expertmiss
