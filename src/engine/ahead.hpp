// Reads of experts that a policy will admit later, into host memory, while the model computes. When they land they are
// copied into slots: at their due token, where a read that is late is waited for, so that no decision depends on the
// disk; or by the clock, at the first token that begins after the read has ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "host_memory.hpp"
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
    /// A token begins: notes which reads have ended by now.
    void begin_token();
    /// Whether an expert had been read when the token began; always where reads never wait.
    bool arrived(int layer, int expert) const;
    /// Begins to copy an expert that was wanted into a slot, once its read has ended; false where it was not.
    bool land(int layer, int expert, int slot);
    /// The copies that `land` has begun have ended.
    void settled();
    /// Drops an expert that left again as it landed.
    void drop(int layer, int expert);
    /// Drops everything; waits for the reads under way.
    void clear();

  private:
    struct Read {
        HostBlock block;
        IoPool::Batch batch;
        bool arrived = false;
    };
    HostBlock block_of(std::uint64_t size);
    std::unique_ptr<Read> take(int layer, int expert);
    void release(HostBlock block);

    SlotCache& cache_;
    TokenClock& clock_;
    std::map<std::pair<int, int>, std::unique_ptr<Read>> reads_;  // by (layer, expert)
    std::vector<HostBlock> landing_;                              // being copied
    std::vector<HostBlock> spare_;                                // to be used again: pinned memory is slow to come by
    std::uint64_t held_ = 0;                                      // bytes of reads and copies
};

}  // namespace expertmiss::engine
