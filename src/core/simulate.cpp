#include "simulate.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.hpp"
#include "future.hpp"

namespace expertmiss {
namespace {

std::vector<Segment> find_segments(const Trace& trace) {
    std::vector<Segment> segments;
    for (std::int64_t token = 0; token < trace.tokens; ++token) {
        if (token == 0 || trace.document[token] != trace.document[token - 1])
            segments.push_back({token, token, trace.document[token]});
        segments.back().end = token + 1;
    }
    return segments;
}

/// Runs one pool, which holds the layers [first, last), through the whole trace.
template <class Rule>
class PoolRun {
  public:
    PoolRun(const Trace& trace, const Model& model, const Policy& policy, int capacity, const Rule& rule, int first,
            int last, const SimulationOptions& options, Simulation& result, LandingLog& landings)
        : trace_(trace),
          model_(model),
          options_(options),
          result_(result),
          landings_(landings),
          first_(first),
          layers_(last - first),
          pool_(layers_, model.experts, capacity, counting_of(policy.eviction)),
          step_(model, policy, rule, pool_, {.weights = options.log || options.kl || options.check, .kl = options.kl}),
          opt_(std::holds_alternative<Opt>(policy.eviction)),
          carry_(policy.state == Carry::carry),
          check_(options.check || (kAlwaysCheck && !policy.mutants.any())),
          counters_(static_cast<std::size_t>(layers_)),
          reversed_(policy.mutants.tie_higher_id ? trace.depth : 0) {}

    void operator()(const std::vector<int>& order) {
        for (std::size_t index = 0; index < result_.segments.size(); ++index) {
            const Segment& segment = result_.segments[index];
            if (index == 0 || !carry_) start(segment.begin, carry_ ? trace_.tokens : segment.end, order);
            std::fill(counters_.begin(), counters_.end(), Counters{});
            for (std::int64_t token = segment.begin; token < segment.end; ++token) run_token(segment.document, token);
            std::copy(counters_.begin(), counters_.end(), result_.counters.begin() + index * model_.layers + first_);
        }
    }

  private:
    void start(std::int64_t begin, std::int64_t end, const std::vector<int>& order) {
        run_begin_ = begin;
        if (opt_) future_.look(trace_, model_, first_, first_ + layers_, begin, end);
        pool_.reset(order, opt_ ? future_.first_use.data() : nullptr);
    }

    void run_token(int document, std::int64_t token) {
        int layer = 0;
        try {
            for (; layer < layers_; ++layer) run_step(document, token, layer);
        } catch (const std::invalid_argument& problem) {
            throw std::invalid_argument("layer " + std::to_string(first_ + layer) + ", token " + std::to_string(token) +
                                        ": " + problem.what());
        }
    }

    void run_step(int document, std::int64_t token, int layer) {
        const TraceLayer& stored = trace_.layers[first_ + layer];
        Row row{.ids = stored.ids + token * trace_.depth,
                .z32 = stored.z + token * trace_.depth,
                .z64 = nullptr,
                .lse = stored.lse[token],
                .zmin = stored.zmin[token],
                .depth = trace_.depth,
                .next_use = opt_ ? future_.at(token - run_begin_, layer, layers_, model_.top_k) : nullptr};
        if (!reversed_.empty()) {
            std::copy_n(row.ids, trace_.depth, reversed_.begin());
            reverse_ties(reversed_.data(), row.z32, trace_.depth);
            row.ids = reversed_.data();
        }
        step_.run(document, first_ + layer, layer, row, counters_.data());
        if (check_) check_step(step_, document, first_ + layer);
        if (options_.log) {
            const auto at = static_cast<std::size_t>((token * model_.layers + first_ + layer) * model_.top_k);
            result_.calls.write(at, document, first_ + layer, step_);
            landings_.append(document, first_, token, step_);
        }
    }

    const Trace& trace_;
    const Model& model_;
    const SimulationOptions& options_;
    Simulation& result_;
    LandingLog& landings_;
    const int first_, layers_;
    Pool pool_;
    Step<Rule> step_;
    const bool opt_, carry_, check_;
    Future future_;
    std::int64_t run_begin_ = 0;
    std::vector<Counters> counters_;       // of this pool's layers, current segment
    std::vector<std::uint16_t> reversed_;  // mutant tie_higher_id only
};

/// Calls `work(0) ... work(count - 1)` on up to `threads` threads; rethrows the first failure by index.
template <class Work>
void in_parallel(int count, int threads, Work work) {
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count));
    std::atomic<int> next{0};
    const auto take = [&] {
        for (int index = next++; index < count; index = next++) {
            try {
                work(index);
            } catch (...) {
                failures[index] = std::current_exception();
            }
        }
    };
    std::vector<std::jthread> helpers;
    for (int helper = 1; helper < std::min(threads, count); ++helper) helpers.emplace_back(take);
    take();
    helpers.clear();
    for (const auto& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

}  // namespace

Simulation simulate(const Trace& trace, const Model& model, const Policy& policy, int capacity,
                    const std::vector<std::vector<int>>& orders, const SimulationOptions& options) {
    Simulation result;
    result.segments = find_segments(trace);
    result.counters.resize(result.segments.size() * static_cast<std::size_t>(model.layers));
    if (options.log) result.calls.resize(static_cast<std::size_t>(trace.tokens) * model.layers * model.top_k);

    const int pools = static_cast<int>(orders.size());
    const int layers_per_pool = model.layers / pools;
    std::vector<LandingLog> landings(orders.size());
    std::visit(
        [&]<class Rule>(const Rule& rule) {
            in_parallel(pools, options.threads, [&](int pool) {
                const int first = pool * layers_per_pool;
                PoolRun<Rule> run(trace, model, policy, capacity, rule, first, first + layers_per_pool, options, result,
                                  landings[pool]);
                run(orders[pool]);
            });
        },
        policy.rule);
    result.landings = merge(landings);
    return result;
}

}  // namespace expertmiss
