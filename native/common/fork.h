// Locks that a fork must find free, so that the child can take them: whoever holds one in another thread does not exist
// there. Locked, in the order of registration, by the recorder's fork handlers after the recorder's own lock.
#pragma once

namespace ae {

struct ForkLock {
  void* lock;
  void (*acquire)(void*);
  void (*release)(void*);
};
void add_fork_lock(ForkLock lock);

// Registers a lock that lives for ever.
template <class Lock>
void hold_at_fork(Lock& lock) {
  add_fork_lock({&lock, [](void* l) { static_cast<Lock*>(l)->lock(); }, [](void* l) { static_cast<Lock*>(l)->unlock(); }});
}

void acquire_fork_locks();
void release_fork_locks();

} // namespace ae
