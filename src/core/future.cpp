#include "future.hpp"

#include <stdexcept>

#include "eviction/opt.hpp"

namespace expertmiss {

void Future::look(const Trace& trace, const Model& model, int first, int last, std::int64_t begin, std::int64_t end) {
    const int layers = last - first;
    next_use.resize(static_cast<std::size_t>((end - begin) * layers * model.top_k));
    first_use.assign(static_cast<std::size_t>(layers) * model.experts, Opt::kNoUse);
    auto position = static_cast<std::int64_t>(next_use.size());
    for (std::int64_t token = end - 1; token >= begin; --token) {
        for (int layer = layers - 1; layer >= 0; --layer) {
            const std::uint16_t* ids = trace.layers[first + layer].ids + token * trace.depth;
            for (int rank = model.top_k - 1; rank >= 0; --rank) {
                if (ids[rank] >= model.experts) throw std::invalid_argument("an expert id is not below E");
                std::int64_t& soonest = first_use[static_cast<std::size_t>(layer) * model.experts + ids[rank]];
                next_use[--position] = soonest;
                soonest = -position;
            }
        }
    }
}

}  // namespace expertmiss
