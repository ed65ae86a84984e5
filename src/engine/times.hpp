// Where a token's time goes. Exactly one part runs at any moment on the thread that decodes, so the parts of a token
// add up to its wall time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace expertmiss::engine {

enum class Part {
    compute,     // the model: all that is not one of the others
    waiting,     // for the reads of experts that the token needs, and for admissions that are late
    policy,      // the core's decisions, slots chosen, ids and weights exchanged with the graph
    background,  // admissions: reads begun, copies into slots
};
inline constexpr std::size_t kParts = 4;

struct TokenTimes {
    std::array<std::int64_t, kParts> parts{};  // nanoseconds, by Part
    std::int64_t fetch_bytes = 0;              // of experts whose reads the token began because it needed them
    std::int64_t admission_bytes = 0;          // of experts whose reads it began for later tokens

    std::int64_t of(Part part) const { return parts[static_cast<std::size_t>(part)]; }
    std::int64_t wall() const;
    void add(const TokenTimes& other);
};

class TokenClock {
  public:
    /// Lets a part run for as long as it lives; then the one before goes on.
    class Span {
      public:
        Span(TokenClock& clock, Part part) : clock_(clock), before_(clock.change(part)) {}
        ~Span() { clock_.change(before_); }
        Span(const Span&) = delete;
        Span& operator=(const Span&) = delete;

      private:
        TokenClock& clock_;
        const Part before_;
    };

    /// A token begins; what ran since the last one has ended belongs to none.
    void begin();
    /// It has ended well and counts.
    void end();

    TokenTimes token;                // the running one
    TokenTimes total;                // of all tokens
    std::vector<TokenTimes> tokens;  // one by one, until somebody takes them

  private:
    Part change(Part part);

    Part part_ = Part::compute;
    std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace expertmiss::engine
