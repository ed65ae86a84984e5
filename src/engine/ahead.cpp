#include "ahead.hpp"

namespace expertmiss::engine {
namespace {

// Queues are unbounded; what does not fit is read when it is due.
constexpr std::uint64_t kMostHeld = std::uint64_t{256} << 20;

}  // namespace

void ReadAhead::want(int layer, int expert) {
    const std::uint64_t size = cache_.bytes_of(layer);
    if (!cache_.reads_wait() || held_ + size > kMostHeld) return;
    auto& read = reads_[{layer, expert}];
    if (read) return;
    read = std::make_unique<Read>();
    read->bytes.resize(size);
    held_ += size;
    clock_.token.admission_bytes += static_cast<std::int64_t>(size);
    cache_.read_ahead(layer, expert, read->bytes.data(), read->batch);
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
    held_ -= read->bytes.size();
    reads_.erase(found);
    return read;
}

bool ReadAhead::land(int layer, int expert, int slot) {
    const std::unique_ptr<Read> read = take(layer, expert);
    if (read) cache_.put(layer, expert, slot, read->bytes.data());
    return read != nullptr;
}

void ReadAhead::drop(int layer, int expert) { take(layer, expert); }

void ReadAhead::clear() {
    for (auto& [key, read] : reads_) {
        try {
            read->batch.wait();
        } catch (...) {  // nobody needs these bytes any more
        }
    }
    reads_.clear();
    held_ = 0;
}

}  // namespace expertmiss::engine
