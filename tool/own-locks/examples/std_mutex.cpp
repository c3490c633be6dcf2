// std::mutex, in memory that all workers share.
//
// As threads that is what it is made for. As processes it is undefined: C++ knows no
// other process, and libstdc++'s mutex wakes sleepers of its own process alone. It
// often seems to work, until somebody sleeps; jostle shows it. (A pthread_mutex_t
// with PTHREAD_PROCESS_SHARED is the cure.)
//
//     c++ -O2 -shared -fPIC -I tool/own-locks -o std_mutex.so tool/own-locks/examples/std_mutex.cpp
//     jostle contend lib:./std_mutex.so --as threads -w 4     # right
//     jostle contend lib:./std_mutex.so -w 4                  # wrong: see what it says
#include "jostle_lock.h"

#include <cerrno>
#include <mutex>
#include <new>

struct alignas(128) Lock {
    std::mutex mutex;
};

extern "C" {

int jostle_abi() { return JOSTLE_LOCK_ABI; }

size_t jostle_shared_bytes(const char *, unsigned, unsigned keys) { return keys * sizeof(Lock); }

int jostle_prepare(void *shared, const char *, unsigned, unsigned keys)
{
    for (unsigned key = 0; key < keys; key++)
        new (static_cast<Lock *>(shared) + key) Lock;
    return 0;
}

void *jostle_join(void *shared, unsigned) { return shared; }

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns, uint64_t *)
{
    std::mutex &mutex = static_cast<Lock *>(self)[key].mutex;
    if (is_shared || deadline_ns > 0)
        return -ENOTSUP;
    if (deadline_ns == 0)
        return mutex.try_lock();
    // No signal ends this wait; among threads it ends when the owners before us release.
    mutex.lock();
    return 1;
}

int jostle_release(void *self, unsigned key, int)
{
    static_cast<Lock *>(self)[key].mutex.unlock();
    return 0;
}

void jostle_leave(void *) {}
}
