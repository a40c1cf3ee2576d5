#include "common/fork.h"

#include <mutex>
#include <vector>

namespace ae {
namespace {

struct Locks {
  std::mutex mutex;
  std::vector<ForkLock> all;
};

Locks& locks() {
  static auto* l = new Locks;
  return *l;
}

} // namespace

void add_fork_lock(ForkLock lock) {
  std::lock_guard guard(locks().mutex);
  locks().all.push_back(lock);
}

void acquire_fork_locks() {
  locks().mutex.lock();
  for (const auto& lock : locks().all) {
    lock.acquire(lock.lock);
  }
}

void release_fork_locks() {
  auto& all = locks().all;
  for (auto lock = all.rbegin(); lock != all.rend(); ++lock) {
    lock->release(lock->lock);
  }
  locks().mutex.unlock();
}

} // namespace ae
