"""redis-py's Lock: redis_lock.py URL PREFIX locks the keys PREFIX:0, PREFIX:1, ...

A lease of 30 s frees the lock of a worker that was killed.
"""

import sys

import redis

from peer import serve

url, prefix = sys.argv[1:]
client = redis.Redis.from_url(url)
locks = []


def join(worker, keys):
    locks.extend(
        client.lock(f"{prefix}:{key}", timeout=30, sleep=0.001, thread_local=False)
        for key in range(keys)
    )
    return "timeout", acquire, release


def acquire(key, shared, ms):
    if ms < 0:
        return locks[key].acquire(blocking=True)
    if ms == 0:
        return locks[key].acquire(blocking=False)
    return locks[key].acquire(blocking=True, blocking_timeout=ms / 1000)


def release(key):
    locks[key].release()


serve(join)

# A worker whose run has ended may have been granted a lock that nobody waits for.
for lock in locks:
    if lock.owned():
        lock.release()
