// Reads of experts that a policy will admit later, into host memory, while the model computes. At their due token they
// are copied into slots; a read that is late by then is waited for, so that no decision depends on the disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "slots.hpp"
#include "times.hpp"

namespace expertmiss::engine {

class ReadAhead {
  public:
    ReadAhead(SlotCache& cache, TokenClock& clock) : cache_(cache), clock_(clock) {}
    ~ReadAhead() { clear(); }
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    /// Begins to read an expert, unless it is under way, reads never wait, or too much is held already.
    void want(int layer, int expert);
    /// Copies an expert that was wanted into a slot, once its read has ended; false where it was not.
    bool land(int layer, int expert, int slot);
    /// Drops an expert that left again as it landed.
    void drop(int layer, int expert);
    /// Drops everything; waits for the reads under way.
    void clear();

  private:
    struct Read {
        std::vector<char> bytes;
        IoPool::Batch batch;
    };
    std::unique_ptr<Read> take(int layer, int expert);

    SlotCache& cache_;
    TokenClock& clock_;
    std::map<std::pair<int, int>, std::unique_ptr<Read>> reads_;  // by (layer, expert)
    std::uint64_t held_ = 0;                                      // bytes
};

}  // namespace expertmiss::engine
