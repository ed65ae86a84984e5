#include "ahead.hpp"

#include <algorithm>
#include <utility>

namespace expertmiss::engine {
namespace {

// Queues are unbounded; what does not fit is read when it is due.
constexpr std::uint64_t kMostHeld = std::uint64_t{256} << 20;

}  // namespace

void ReadAhead::want(int layer, int expert) {
    const std::uint64_t size = cache_.bytes_of(layer);
    if (!cache_.reads_wait() || (held_ > 0 && held_ + size > kMostHeld)) return;
    auto& read = reads_[{layer, expert}];
    if (read) return;
    read = std::make_unique<Read>();
    read->block = block_of(size);
    held_ += size;
    clock_.token.admission_bytes += static_cast<std::int64_t>(size);
    cache_.read_ahead(layer, expert, read->block.bytes, read->batch);
}

/// A block of this size: one that is free, or a new one. Layers differ little in size, so free ones fit.
HostBlock ReadAhead::block_of(std::uint64_t size) {
    const auto found =
        std::find_if(spare_.begin(), spare_.end(), [&](const HostBlock& block) { return block.size == size; });
    if (found == spare_.end()) return host_block(cache_.device(), size);
    HostBlock block = std::move(*found);
    spare_.erase(found);
    return block;
}

void ReadAhead::release(HostBlock block) {
    held_ -= block.size;
    spare_.push_back(std::move(block));
}

void ReadAhead::begin_token() {
    for (auto& [key, read] : reads_) read->arrived = read->batch.ended();
}

bool ReadAhead::arrived(int layer, int expert) const {
    if (!cache_.reads_wait()) return true;
    const auto found = reads_.find({layer, expert});
    return found != reads_.end() && found->second->arrived;
}

/// The read of an expert, ended; null where there was none.
std::unique_ptr<ReadAhead::Read> ReadAhead::take(int layer, int expert) {
    const auto found = reads_.find({layer, expert});
    if (found == reads_.end()) return nullptr;
    {
        const TokenClock::Span late(clock_, Part::waiting);
        found->second->batch.wait();
    }
    std::unique_ptr<Read> read = std::move(found->second);
    reads_.erase(found);
    return read;
}

bool ReadAhead::land(int layer, int expert, int slot) {
    const std::unique_ptr<Read> read = take(layer, expert);
    if (!read) return false;
    cache_.put(layer, expert, slot, read->block.bytes);
    landing_.push_back(std::move(read->block));
    return true;
}

void ReadAhead::settled() {
    for (HostBlock& block : landing_) release(std::move(block));
    landing_.clear();
}

void ReadAhead::drop(int layer, int expert) {
    if (const std::unique_ptr<Read> read = take(layer, expert); read) release(std::move(read->block));
}

void ReadAhead::clear() {
    for (auto& [key, read] : reads_) {
        try {
            read->batch.wait();
        } catch (...) {  // nobody needs these bytes any more
        }
        release(std::move(read->block));
    }
    reads_.clear();
}

}  // namespace expertmiss::engine
