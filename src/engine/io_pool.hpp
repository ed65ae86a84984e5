// A few threads for reads that wait on the disk.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace expertmiss::engine {

class IoPool {
  public:
    /// Work of one fetch or of several; waited for as a whole.
    class Batch;

    explicit IoPool(int threads);
    ~IoPool();
    IoPool(const IoPool&) = delete;
    IoPool& operator=(const IoPool&) = delete;

    /// Runs `job(thread)` on some thread; `thread` counts from 0, for scratch memory. Jobs that a step waits for go
    /// before those of the background.
    void run(Batch& batch, std::function<void(int)> job, bool background = false);
    int threads() const { return static_cast<int>(threads_.size()); }

    class Batch {
      public:
        /// Returns when every job has ended; rethrows the first exception of one.
        void wait();
        /// Whether every job has ended, well or not.
        bool ended() const;

      private:
        friend class IoPool;
        void end(std::exception_ptr failure);
        mutable std::mutex mutex_;
        std::condition_variable empty_;
        int open_ = 0;
        std::exception_ptr failure_;
    };

  private:
    void work(int thread);
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<std::pair<Batch*, std::function<void(int)>>> jobs_, background_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace expertmiss::engine
