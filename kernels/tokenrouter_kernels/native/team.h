// The threads of one process that share a step. They meet at barriers within a step and sleep between steps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <immintrin.h>
#include <mutex>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tokenrouter {

class Team {
 public:
  static Team &get() {
    static Team *team = new Team;  // never taken apart: its threads sleep until the process ends
    return *team;
  }

  // Runs work(thread) on `threads` threads, this one among them; one caller at a time.
  void run(int threads, const std::function<void(int)> &work) {
    std::lock_guard<std::mutex> alone(callers_);
    if (process_ != getpid()) {  // a fork has none of its parent's threads
      workers_.clear();
      process_ = getpid();
    }
    if (threads == 1) {
      std::lock_guard<std::mutex> lock(mutex_);
      threads_ = threads;
    } else {
      while ((int)workers_.size() < threads - 1) {
        int id = (int)workers_.size() + 1;
        workers_.emplace_back([this, id, seen = round_] { serve(id, seen); });
        workers_.back().detach();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      threads_ = threads;
      work_ = &work;
      left_.store(threads - 1);
      round_++;
      wake_.notify_all();
    }
    work(0);
    spin([&] { return threads == 1 || left_.load(std::memory_order_acquire) == 0; });
  }

  // Waits until all threads of the step are here.
  void meet() {
    if (threads_ == 1) return;
    unsigned turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    spin([&] { return turn_.load(std::memory_order_acquire) != turn; });
  }

 private:
  template <class Done>
  static void spin(const Done &done) {
    for (int tries = 0; !done(); tries++) {
      if (tries < 20000)
        _mm_pause();
      else
        sched_yield();  // a thread that the others wait for may need this core
    }
  }

  void serve(int id, long seen) {
    for (;;) {
      const std::function<void(int)> *work;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
        if (id >= threads_) continue;
        work = work_;
      }
      (*work)(id);
      left_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::mutex callers_, mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  const std::function<void(int)> *work_ = nullptr;
  long round_ = 0;
  int threads_ = 1;
  pid_t process_ = getpid();
  std::atomic<int> arrived_{0}, left_{0};
  std::atomic<unsigned> turn_{0};
};

}  // namespace tokenrouter
