
#include <stdexcept>

#include "arrays.hpp"
#include "parse.hpp"

namespace expertmiss {
namespace {

Rule parse_rule(DictReader reader) {
    const std::string name = reader.text("name");
    Rule rule;
    if (name == "fetch_all") {
        rule = FetchAll{};
    } else if (name == "substitute_all") {
        rule = SubstituteAll{};
    } else if (name == "first_choice") {
        rule = FirstChoice{};
    } else if (name == "threshold") {
        rule = Threshold{.tau = reader.number("tau")};
    } else if (name == "cumulative") {
        rule = Cumulative{.t1 = reader.number("T1"), .t2 = reader.number("T2")};
    } else if (name == "score_margin") {
        rule = ScoreMargin{.alpha = reader.number("alpha")};
    } else if (name == "cache_prior") {
        rule = CachePrior{.lambda = reader.number("lambda"), .always = reader.integer("J")};
    } else if (name == "max_rank") {
        rule = MaxRank{.always = reader.integer("J"), .limit = reader.integer("M")};
    } else if (name == "drop_cold") {
        rule = DropCold{.factor = reader.number("F")};
    } else {
        reader.refuse("unknown rule '" + name + "'");
    }
    reader.finish();
    return rule;
}

Chooser parse_chooser(DictReader reader, std::int64_t seed) {
    const std::string name = reader.text("name", "router_rank");
    Chooser chooser;
    if (name == "random") {
        chooser = Random{.seed = static_cast<std::uint64_t>(reader.integer64("seed", seed))};
    } else if (name == "matched_random") {
        chooser = MatchedRandom{.margin = reader.number("margin"),
                                .seed = static_cast<std::uint64_t>(reader.integer64("seed", seed))};
    } else if (name != "router_rank") {
        reader.refuse("unknown chooser '" + name + "'");
    }
    reader.finish();
    return chooser;
}

Eviction parse_eviction(DictReader reader) {
    const std::string name = reader.text("name", "lru");
    Eviction eviction;
    if (name == "fifo") {
        eviction = Fifo{};
    } else if (name == "lfu") {
        Lfu lfu;
        lfu.variant = reader.choice<Lfu::Variant>("variant", {{"lifetime", Lfu::Variant::lifetime},
                                                              {"in_cache", Lfu::Variant::in_cache},
                                                              {"half_life", Lfu::Variant::half_life}});
        if (lfu.variant == Lfu::Variant::half_life) lfu.half_life = reader.integer("half_life", lfu.half_life);
        eviction = lfu;
    } else if (name == "lfru") {
        eviction = Lfru{};
    } else if (name == "opt") {
        eviction = Opt{};
    } else if (name != "lru") {
        reader.refuse("unknown eviction '" + name + "'");
    }
    reader.finish();
    return eviction;
}

void parse_admission(DictReader reader, Policy& policy) {
    policy.admission = reader.choice<Admission>("name",
                                                {{"fetched_only", Admission::fetched_only},
                                                 {"every_miss", Admission::every_miss},
                                                 {"background", Admission::background}},
                                                "fetched_only");
    if (policy.admission == Admission::background) {
        policy.beta = reader.number("beta");
        policy.delay = reader.integer("delay", policy.delay);
    }
    reader.finish();
}

void parse_weights(DictReader reader, Policy& policy) {
    policy.weights = reader.choice<WeightConvention>(
        "name",
        {{"own", WeightConvention::own}, {"inherit", WeightConvention::inherit}, {"scaled", WeightConvention::scaled}},
        "own");
    if (policy.weights == WeightConvention::scaled) policy.substitute_scale = reader.number("a");
    reader.finish();
}

Groups parse_groups(DictReader reader) {
    Groups groups{
        .count = reader.integer("count"),
        .allowed = reader.integer("allowed"),
        .score = reader.choice<GroupScore>("score", {{"max", GroupScore::max}, {"top2_sum", GroupScore::top2_sum}})};
    reader.finish();
    return groups;
}

}  // namespace

Policy parse_policy(nb::dict dict, std::int64_t seed, const std::optional<std::string>& mutant) {
    Policy policy;
    policy.name = DictReader(dict, "policy").text("name", "unnamed");
    DictReader reader(dict, "policy '" + policy.name + "'");
    reader.has("name");
    if (!reader.has("miss_rule")) reader.refuse("miss_rule is missing");
    policy.rule = parse_rule(reader.inner("miss_rule"));
    policy.chooser = parse_chooser(reader.inner("chooser"), seed);
    parse_weights(reader.inner("weights"), policy);
    policy.eviction = parse_eviction(reader.inner("eviction"));
    parse_admission(reader.inner("admission"), policy);
    policy.fallback =
        reader.choice<Fallback>("fallback", {{"fetch", Fallback::fetch}, {"drop", Fallback::drop}}, "fetch");
    policy.update =
        reader.choice<Update>("update", {{"requests", Update::requests}, {"executed", Update::executed}}, "requests");
    policy.scope = reader.choice<Scope>("scope", {{"layer", Scope::layer}, {"global", Scope::global}}, "layer");
    policy.state = reader.choice<Carry>("state", {{"reset", Carry::reset}, {"carry", Carry::carry}}, "reset");
    reader.choice<int>("prompt", {{"ignore", 0}}, "ignore");
    policy.initial = reader.choice<Initial>(
        "initial", {{"warm", Initial::warm}, {"cold", Initial::cold}, {"random", Initial::random}}, "warm");
    if (reader.has("upload_cap")) policy.upload_cap = reader.integer("upload_cap");
    reader.finish();
    if (mutant) policy.mutants = make_mutant(*mutant);
    return policy;
}

Model parse_model(nb::dict meta) {
    DictReader reader(meta, "metadata");
    Model model;
    model.layers = reader.integer("layers");
    model.experts = reader.integer("experts");
    model.top_k = reader.integer("top_k");
    const std::string gating = reader.text("gating", "softmax");
    model.gating = reader.choice<Gating>(
        "gating", {{"softmax", Gating::softmax}, {"softmax_after_topk", Gating::softmax}, {"sigmoid", Gating::sigmoid}},
        "softmax");
    model.normalise = reader.boolean("normalise", true) || gating == "softmax_after_topk";
    model.scale = reader.number("scale", 1.0);
    if (reader.has("groups")) model.groups = parse_groups(reader.inner("groups"));
    if (reader.has("bias")) {
        const nb::object rows = reader.object("bias");
        const auto wrong = [&] { reader.refuse("bias must be [layers][experts] numbers"); };
        if (nb::len(rows) != static_cast<std::size_t>(model.layers)) wrong();
        for (nb::handle row : rows) {
            if (nb::len(row) != static_cast<std::size_t>(model.experts)) wrong();
            for (nb::handle value : row) {
                double number = 0.0;
                if (!nb::try_cast(value, number)) wrong();
                model.bias.push_back(number);
            }
        }
    }
    check_model(model);
    return model;
}

}  // namespace expertmiss
