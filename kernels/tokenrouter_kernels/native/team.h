// The threads of one process that share a step. They meet at barriers within a step and sleep between steps.
//
// Who waits looks on for some microseconds, which is what a balanced barrier takes; then it lets others have its core between
// two looks, and at last it sleeps. Where another process wants a core too, the thread that is missing may stand behind it, or
// behind the very thread that waits: one that only looks on would keep it there for milliseconds, at each of the barriers of each layer.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <immintrin.h>
#include <linux/futex.h>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
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
    if (threads > 1) {
      for (int left; (left = left_.load()) != 0;) wait(left_, left);
    }
  }

  // Waits until all threads of the step are here.
  void meet() {
    if (threads_ == 1) return;
    int turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1);
      wake(turn_);
      return;
    }
    wait(turn_, turn);
  }

 private:
  static constexpr int LOOKS = 1000;  // 28 us on a Zen 3
  static constexpr int PATIENCE = 2000;  // us; sleeping and being woken costs a step more than it gains others where none wants the core

  // Returns when a word has, or had, another value than this one.
  void wait(std::atomic<int> &word, int value) {
    for (int looks = 0; looks < LOOKS; looks++) {
      if (word.load(std::memory_order_acquire) != value) return;
      _mm_pause();
    }
    auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(PATIENCE);
    do {
      sched_yield();
      if (word.load(std::memory_order_acquire) != value) return;
    } while (std::chrono::steady_clock::now() < end);
    // Either the thread that changes the word sees that somebody sleeps, or this one sees the change.
    asleep_.fetch_add(1);
    while (word.load() == value)
      syscall(SYS_futex, reinterpret_cast<int *>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
    asleep_.fetch_sub(1);
  }

  // Wakes who sleeps at a word that has just been changed.
  void wake(std::atomic<int> &word) {
    if (asleep_.load() > 0)
      syscall(SYS_futex, reinterpret_cast<int *>(&word), FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
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
      left_.fetch_sub(1);
      wake(left_);
    }
  }

  std::mutex callers_, mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  const std::function<void(int)> *work_ = nullptr;
  long round_ = 0;
  int threads_ = 1;
  pid_t process_ = getpid();
  std::atomic<int> arrived_{0}, left_{0}, turn_{0}, asleep_{0};
};

}  // namespace tokenrouter
