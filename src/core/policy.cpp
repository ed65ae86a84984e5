#include "policy.hpp"

#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace expertmiss {
namespace {

constexpr int kLargestId = std::numeric_limits<std::uint16_t>::max();

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    throw std::invalid_argument(text.str());
}

/// Checks of a rule's own parameters, as text of what is wrong or empty.
struct RuleCheck {
    const Model& model;
    int depth;

    std::string operator()(const Threshold& rule) const {
        return rule.tau >= 0.0 ? "" : "threshold: tau must be at least 0";
    }
    std::string operator()(const Cumulative& rule) const {
        return rule.t1 >= 0.0 && rule.t1 <= rule.t2 ? "" : "cumulative: 0 <= T1 <= T2 must hold";
    }
    std::string operator()(const DropCold& rule) const {
        return rule.factor >= 0.0 ? "" : "drop_cold: F must be at least 0";
    }
    std::string operator()(const ScoreMargin& rule) const {
        if (!(rule.alpha >= 0.0 && std::isfinite(rule.alpha)))
            return "score_margin: alpha must be finite and at least 0";
        if (model.has_bias()) return "score_margin is not defined for a model with a selection bias";
        if (depth <= model.top_k && depth < model.candidates())
            return "score_margin needs the (K+1)-th score: record the trace with depth M > K";
        return "";
    }
    std::string operator()(const CachePrior& rule) const {
        if (!(rule.lambda >= 0.0 && std::isfinite(rule.lambda)))
            return "cache_prior: lambda must be finite and at least 0";
        if (rule.always < 0 || rule.always > model.top_k) return "cache_prior: 0 <= J <= K must hold";
        if (model.has_bias()) return "cache_prior is not defined for a model with a selection bias";
        if (model.has_groups()) return "cache_prior is not defined for a model with group limits";
        return "";
    }
    std::string operator()(const MaxRank& rule) const {
        if (rule.always < 0 || rule.always > model.top_k || rule.limit < model.top_k || rule.limit > model.experts)
            return "max_rank: 0 <= J <= K <= M <= E must hold";
        if (rule.limit > depth && depth < model.candidates())
            return "max_rank: M is larger than the number of ranks that are known (depth of the trace)";
        return "";
    }
    template <class Other>
    std::string operator()(const Other&) const {
        return "";
    }
};

}  // namespace

void check_model(const Model& model) {
    if (model.layers < 1) refuse("layers must be at least 1");
    if (model.experts < 1 || model.experts > kLargestId + 1) refuse("experts must be between 1 and ", kLargestId + 1);
    const Groups& groups = model.groups;
    if (groups.count < 1 || model.experts % groups.count != 0)
        refuse("groups: count = ", groups.count, " does not divide experts = ", model.experts);
    if (groups.allowed < 1 || groups.allowed > groups.count) refuse("groups: allowed must be between 1 and count");
    if (model.top_k < 1 || model.top_k > model.experts) refuse("top_k must be between 1 and experts = ", model.experts);
    if (model.top_k > model.candidates())
        refuse("groups: the allowed groups hold ", model.candidates(), " experts, fewer than top_k = ", model.top_k);
    if (!(model.scale > 0.0 && std::isfinite(model.scale))) refuse("scale must be finite and above 0");
    for (const double bias : model.bias)
        if (!std::isfinite(bias)) refuse("bias holds a value that is not finite");
}

void check_policy(const Policy& policy, const Model& model, int capacity, int depth) {
    const auto refuse_policy = [&](const auto&... parts) { refuse("policy '", policy.name, "': ", parts...); };
    if (capacity < model.top_k || capacity > model.experts)
        refuse_policy("capacity C = ", capacity, " must be between K = ", model.top_k, " and E = ", model.experts);
    if (depth < model.top_k || depth > model.candidates())
        refuse_policy("depth M = ", depth, " must be between K = ", model.top_k, " and ", model.candidates(),
                      " experts");
    if (model.has_groups() && depth < model.candidates())
        refuse_policy("a group-limited model needs every allowed expert ranked: depth M = ", model.candidates());

    const std::string wrong = std::visit(RuleCheck{model, depth}, policy.rule);
    if (!wrong.empty()) refuse_policy(wrong);
    if (const auto* matched = std::get_if<MatchedRandom>(&policy.chooser);
        matched != nullptr && !(matched->margin >= 0.0))
        refuse_policy("chooser matched_random: margin must be at least 0");
    if (!(policy.substitute_scale > 0.0 && std::isfinite(policy.substitute_scale)))
        refuse_policy("weights scaled: a must be finite and above 0");
    if (const auto* lfu = std::get_if<Lfu>(&policy.eviction);
        lfu != nullptr && (lfu->half_life < 1 || lfu->half_life > 1'000'000))
        refuse_policy("eviction lfu: half_life must be between 1 and 1000000 tokens");
    if (!(policy.beta >= 0.0)) refuse_policy("admission background: beta must be at least 0");
    if (policy.delay < 1) refuse_policy("admission background: delay must be at least 1 token");
    if (policy.upload_cap.has_value() && *policy.upload_cap < 1)
        refuse_policy("upload_cap must be at least 1, or null for none");

    const bool reroutes = std::visit([]<class R>(const R&) { return R::kReroutes; }, policy.rule);
    if (std::holds_alternative<Opt>(policy.eviction) && !std::holds_alternative<FetchAll>(policy.rule))
        refuse_policy(
            "eviction opt needs miss rule fetch_all: under any other rule later requests depend on the cache");
    if (policy.weights == WeightConvention::inherit && reroutes)
        refuse_policy(
            "weights inherit is not defined for a re-routing rule: its experts have no call of the router to inherit "
            "from");
    const bool admits = policy.admission == Admission::every_miss ||
                        (policy.admission == Admission::background && std::isfinite(policy.beta));
    if (std::holds_alternative<SubstituteAll>(policy.rule) && !admits)
        refuse_policy(
            "substitute_all needs an admission (every_miss, or background with finite beta): its cache would never "
            "change");
}

}  // namespace expertmiss
