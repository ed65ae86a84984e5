// What is executed, and what has to be fetched for it: the policy core's decisions carried out on the slot cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ahead.hpp"
#include "slots.hpp"
#include "stepper.hpp"

namespace expertmiss::engine {

struct DecideOptions {
    bool log = false;    // keep the core's decision log
    bool keep = false;   // keep router logits, executed ids and weights of every token
    bool check = false;  // assert the core's invariants at every step
    bool timed = false;  // admissions land at the first token that begins after their read, not at their due token
};

/// What a run kept (DecideOptions::keep), token after token, layer after layer.
struct Kept {
    std::vector<float> logits;       // [T, L, E]
    std::vector<std::uint16_t> ids;  // [T, L, K]; unused places: id 0, weight 0
    std::vector<double> weights;     // [T, L, K]
};

struct Traffic {
    std::int64_t fetches = 0;      // experts read because the step needed them
    std::int64_t fills = 0;        // experts read to reach a start's residents
    std::int64_t landings = 0;     // experts read for the policy's background admissions
    std::int64_t ahead = 0;        // of these and of the fetches, reads that had begun before they were due
    std::int64_t repairs = 0;      // experts read again or besides, after a difference of routing
    std::int64_t differences = 0;  // steps where the graph chose another set than the core ranks (ties after rounding)
    double filling = 0.0;          // seconds in which a start waited for its residents
};

class Decider {
  public:
    Decider(const Model& model, Policy policy, int capacity, std::vector<std::vector<int>> orders, SlotCache& cache,
            TokenClock& clock, DecideOptions options);
    ~Decider();

    /// Starts a document: the core's initial state, its residents in slots.
    void reset(int document);
    /// The router has spoken: decides and begins the reads. `z` [E].
    void begin(int layer, const float* z);
    /// Replaces the graph's ids [K] by slots, after the reads have ended. Returns whether `weights` [K] must be
    /// replaced, too.
    bool finish(int layer, std::vector<std::int32_t>& ids, std::vector<float>& weights);

    Stepper stepper;
    Kept kept;
    Traffic traffic;
    TokenClock& clock;

  private:
    void place(int layer, int expert, std::int64_t& counter, Part part);
    void load(int layer, int expert, int slot, Part part);
    const std::vector<int>& arrivals(int layer);
    void admit(int layer);
    void keep(const float* z);
    void wait();
    bool set_differs(const std::vector<std::int32_t>& ids, const std::vector<int>& others) const;

    SlotCache& cache_;
    ReadAhead ahead_;
    const DecideOptions options_;
    const bool lossless_;
    const StepBase* step_ = nullptr;
    IoPool::Batch batch_;
    std::vector<int> executed_;  // in order of execution
    std::vector<int> chosen_;    // S
    std::vector<int> arrived_;   // queued experts that may land
};

}  // namespace expertmiss::engine
