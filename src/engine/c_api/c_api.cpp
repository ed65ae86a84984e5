#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "expertmiss_engine.h"
#include "initial.hpp"
#include "session.hpp"

using expertmiss::Policy;
using expertmiss::engine::Session;
using expertmiss::engine::SessionOptions;

struct em_session {
    Session engine;
};

namespace {

thread_local std::string last_error;

/// Runs `call`; an exception becomes `failed`, with its message kept.
template <class Value, class Call>
Value guarded(Value failed, const Call& call) {
    try {
        return call();
    } catch (const std::exception& problem) {
        last_error = problem.what();
        return failed;
    }
}

Policy lossless() {
    Policy policy;
    policy.name = "fetch_all";
    policy.rule = expertmiss::FetchAll{};
    policy.eviction = expertmiss::Lru{};
    policy.initial = expertmiss::Initial::cold;
    return policy;
}

}  // namespace

em_options em_default_options(void) {
    const SessionOptions options;
    return {"direct", "cpu", "f16", options.context, options.batch, options.threads, options.io_threads, 0};
}

const char* em_error(void) { return last_error.c_str(); }

em_session* em_open(const char* path, const em_options* options) {
    const em_options asked = options == nullptr ? em_default_options() : *options;
    return guarded<em_session*>(nullptr, [&] {
        return new em_session{Session(path, {.store = asked.store,
                                             .device = asked.device,
                                             .cache_type = asked.cache_type,
                                             .context = asked.context,
                                             .batch = asked.batch,
                                             .threads = asked.threads,
                                             .io_threads = asked.io_threads,
                                             .flash_attention = asked.flash_attention != 0})};
    });
}

void em_close(em_session* session) { delete session; }

int em_layers(const em_session* session) { return session->engine.router().model.layers; }
int em_experts(const em_session* session) { return session->engine.router().model.experts; }
int em_top_k(const em_session* session) { return session->engine.router().model.top_k; }
int em_vocabulary(const em_session* session) { return session->engine.vocabulary(); }

int em_start(em_session* session, int capacity) {
    return guarded(-1, [&] {
        const auto layers = static_cast<std::size_t>(em_layers(session));
        session->engine.start(lossless(), capacity, std::vector<std::vector<int>>(layers), {});
        return 0;
    });
}

int em_start_stock(em_session* session) {
    return guarded(-1, [&] {
        session->engine.start_stock();
        return 0;
    });
}

int em_reset(em_session* session) {
    return guarded(-1, [&] {
        session->engine.reset(0);
        return 0;
    });
}

const float* em_prefill(em_session* session, const int* tokens, int count) {
    return guarded<const float*>(nullptr, [&] { return session->engine.prefill({tokens, tokens + count}); });
}

const float* em_step(em_session* session, int token) {
    return guarded<const float*>(nullptr, [&] { return session->engine.step(token); });
}

int em_verify(em_session* session) {
    return guarded(-1, [&] { return session->engine.cache().verify(); });
}

em_traffic em_read_traffic(em_session* session) {
    em_traffic found{};
    found.computing = session->engine.computing();
    if (session->engine.stock()) return found;
    const auto& traffic = session->engine.decider().traffic;
    found.fetches = traffic.fetches;
    found.bytes = session->engine.cache().loaded_bytes();
    found.waiting = static_cast<double>(session->engine.clock().total.of(expertmiss::engine::Part::waiting)) * 1e-9;
    return found;
}
