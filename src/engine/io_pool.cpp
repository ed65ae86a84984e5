#include "io_pool.hpp"

#include <utility>

namespace expertmiss::engine {

IoPool::IoPool(int threads) {
    for (int thread = 0; thread < threads; ++thread) threads_.emplace_back([this, thread] { work(thread); });
}

IoPool::~IoPool() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    filled_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void IoPool::run(Batch& batch, std::function<void(int)> job, bool background) {
    {
        std::lock_guard lock(batch.mutex_);
        ++batch.open_;
    }
    {
        std::lock_guard lock(mutex_);
        (background ? background_ : jobs_).emplace_back(&batch, std::move(job));
    }
    filled_.notify_one();
}

void IoPool::work(int thread) {
    while (true) {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [this] { return stopping_ || !jobs_.empty() || !background_.empty(); });
        auto& queue = jobs_.empty() ? background_ : jobs_;
        if (queue.empty()) return;
        auto [batch, job] = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        std::exception_ptr failure;
        try {
            job(thread);
        } catch (...) {
            failure = std::current_exception();
        }
        batch->end(failure);
    }
}

void IoPool::Batch::wait() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [this] { return open_ == 0; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

bool IoPool::Batch::ended() const {
    const std::lock_guard lock(mutex_);
    return open_ == 0;
}

void IoPool::Batch::end(std::exception_ptr failure) {
    // Under the lock to the end: the waiter may destroy the batch as soon as it is released.
    std::lock_guard lock(mutex_);
    if (failure && !failure_) failure_ = failure;
    if (--open_ == 0) empty_.notify_all();
}

}  // namespace expertmiss::engine
