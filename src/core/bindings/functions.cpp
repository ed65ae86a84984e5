#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "draw.hpp"
#include "initial.hpp"
#include "math.hpp"
#include "parse.hpp"
#include "rank.hpp"

namespace expertmiss {
namespace {

using namespace nb::literals;

template <class Logit>
nb::tuple rank_logits(const Input<Logit, 2>& z, int depth, int top_k, const std::string& gating, nb::object bias,
                      nb::object groups) {
    nb::dict meta;
    meta["layers"] = 1;
    meta["experts"] = z.shape(1);
    meta["top_k"] = top_k;
    meta["gating"] = gating;
    meta["groups"] = groups;
    if (!bias.is_none()) {
        nb::list rows;
        rows.append(bias);
        meta["bias"] = rows;
    }
    const Model model = parse_model(meta);
    if (depth < top_k || depth > model.candidates())
        throw std::invalid_argument("depth M = " + std::to_string(depth) +
                                    " must be between top_k = " + std::to_string(top_k) + " and the " +
                                    std::to_string(model.candidates()) + " experts that can be ranked");
    const std::size_t rows = z.shape(0), experts = z.shape(1), width = static_cast<std::size_t>(depth);
    std::vector<std::uint16_t> ids(rows * width);
    std::vector<float> sorted(rows * width), zmin(rows);
    std::vector<double> lse(rows);
    {
        nb::gil_scoped_release release;
        Ranker ranker(model, depth);
        for (std::size_t row = 0; row < rows; ++row) {
            try {
                const Row ranked = ranker.rank(z.data() + row * experts, 0);
                for (std::size_t rank = 0; rank < width; ++rank) {
                    ids[row * width + rank] = ranked.ids[rank];
                    sorted[row * width + rank] = static_cast<float>(ranked.z64[rank]);
                }
                lse[row] = ranked.lse;
                zmin[row] = static_cast<float>(ranked.zmin);
            } catch (const NonFiniteLogit& problem) {
                throw std::invalid_argument("row " + std::to_string(row) + ": " + problem.what());
            }
        }
    }
    return nb::make_tuple(to_numpy(std::move(ids), {rows, width}), to_numpy(std::move(sorted), {rows, width}),
                          to_numpy(std::move(lse)), to_numpy(std::move(zmin)));
}

nb::object request_counts(const Input<std::uint16_t, 2>& ids, int top_k, int experts) {
    if (top_k < 1 || static_cast<std::size_t>(top_k) > ids.shape(1))
        throw std::invalid_argument("top_k must be between 1 and the depth of ids");
    std::vector<std::int64_t> counts(static_cast<std::size_t>(experts));
    for (std::size_t token = 0; token < ids.shape(0); ++token)
        for (int rank = 0; rank < top_k; ++rank) {
            const int id = ids(token, rank);
            if (id >= experts)
                throw std::invalid_argument("token " + std::to_string(token) + ": expert id " + std::to_string(id) +
                                            " is not below E = " + std::to_string(experts));
            ++counts[id];
        }
    return to_numpy(std::move(counts));
}

}  // namespace

void bind_functions(nb::module_& m) {
    m.attr("VERDICTS") = nb::make_tuple(kVerdictNames[0], kVerdictNames[1], kVerdictNames[2], kVerdictNames[3],
                                        kVerdictNames[4], kVerdictNames[5]);
    nb::list mutants;
    for (const auto name : kMutantNames) mutants.append(std::string(name));
    m.attr("MUTANTS") = nb::tuple(mutants);

    m.def("exp", &core_exp, "x"_a);
    m.def("log", &core_log, "x"_a);
    m.def(
        "half_life_table",
        [](int half_life) {
            if (half_life < 1) throw std::invalid_argument("half_life must be at least 1");
            return to_numpy(half_life_table(half_life));
        },
        "half_life"_a);
    m.def(
        "draw",
        [](std::int64_t seed, const std::vector<std::int64_t>& values) {
            std::uint64_t h = finalise(static_cast<std::uint64_t>(seed));
            for (const std::int64_t value : values) h = finalise(h ^ static_cast<std::uint64_t>(value));
            return h;
        },
        "seed"_a, "values"_a);

    m.def("rank_logits", &rank_logits<float>, "z"_a.noconvert(), "depth"_a, nb::kw_only(), "top_k"_a = 1,
          "gating"_a = "softmax", "bias"_a = nb::none(), "groups"_a = nb::none());
    m.def("rank_logits", &rank_logits<double>, "z"_a.noconvert(), "depth"_a, nb::kw_only(), "top_k"_a = 1,
          "gating"_a = "softmax", "bias"_a = nb::none(), "groups"_a = nb::none());
    m.def("request_counts", &request_counts, "ids"_a.noconvert(), "top_k"_a, "experts"_a);
    m.def(
        "check_policy",
        [](nb::dict meta, nb::dict policy, int capacity, std::optional<int> depth) {
            const Model model = parse_model(meta);
            check_policy(parse_policy(policy, 0, {}), model, capacity, depth.value_or(model.candidates()));
        },
        "meta"_a, "policy"_a, "capacity"_a, "depth"_a = nb::none());
}

}  // namespace expertmiss
