// All miss rules. To add one: a file of the shape in base.hpp, a line here, its parameters in
// bindings/parse_policy.cpp, expertmiss/policies/parameters.py and the configuration, and a test with exact counts.
#pragma once

#include <variant>

#include "rules/cache_prior.hpp"
#include "rules/cumulative.hpp"
#include "rules/drop_cold.hpp"
#include "rules/fetch_all.hpp"
#include "rules/first_choice.hpp"
#include "rules/max_rank.hpp"
#include "rules/score_margin.hpp"
#include "rules/substitute_all.hpp"
#include "rules/threshold.hpp"

namespace expertmiss {

using Rule = std::variant<FetchAll, SubstituteAll, FirstChoice, Threshold, Cumulative, ScoreMargin, CachePrior, MaxRank,
                          DropCold>;

}  // namespace expertmiss
