// A policy: what happens at a miss, who stands in, who leaves, who is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "choosers/chooser.hpp"
#include "eviction/eviction.hpp"
#include "model.hpp"
#include "mutants.hpp"
#include "rules/rule.hpp"

namespace expertmiss {

enum class WeightConvention { own, inherit, scaled };
enum class Admission { fetched_only, every_miss, background };
enum class Fallback { fetch, drop };
enum class Update { requests, executed };
enum class Scope { layer, global };
enum class Carry { reset, carry };
enum class Initial { warm, cold, random };

struct Policy {
    std::string name;
    Rule rule;
    Chooser chooser;
    WeightConvention weights = WeightConvention::own;
    double substitute_scale = 1.0;  // a of scaled(a)
    Eviction eviction;
    Admission admission = Admission::fetched_only;
    double beta = 0.0;
    int delay = 1;
    Fallback fallback = Fallback::fetch;
    Update update = Update::requests;
    Scope scope = Scope::layer;
    Carry state = Carry::reset;
    Initial initial = Initial::warm;
    std::optional<int> upload_cap;
    Mutants mutants;
};

/// Refuses what the definitions refuse: ranges of the parameters and combinations without meaning. `depth` is M.
/// Throws std::invalid_argument with one line that names the policy and the field.
void check_policy(const Policy& policy, const Model& model, int capacity, int depth);

}  // namespace expertmiss
