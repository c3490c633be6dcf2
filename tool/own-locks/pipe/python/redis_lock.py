"""redis-py's Lock: redis_lock.py URL PREFIX [LEASE] locks the keys PREFIX:0, PREFIX:1, ...

A lease of so many seconds (30) frees the lock of a worker that was killed.
"""

import os
import sys

import redis
from redis.exceptions import LockNotOwnedError

from peer import serve

url, prefix, *lease = sys.argv[1:]
lease = float(lease[0]) if lease else 30
client = redis.Redis.from_url(url, password=os.environ.get("REDISCLI_AUTH"))
locks = []


def join(worker, keys):
    locks.extend(
        client.lock(f"{prefix}:{key}", timeout=lease, sleep=0.001, thread_local=False)
        for key in range(keys)
    )
    return f"timeout renew lease={round(lease * 1000)}", acquire, release, renew


def acquire(key, shared, ms):
    if ms < 0:
        return locks[key].acquire(blocking=True)
    if ms == 0:
        return locks[key].acquire(blocking=False)
    return locks[key].acquire(blocking=True, blocking_timeout=ms / 1000)


def release(key):
    try:
        locks[key].release()
    except LockNotOwnedError:
        return False


def renew(key, ms):
    try:
        return locks[key].extend(ms / 1000, replace_ttl=True)
    except LockNotOwnedError:
        return False


serve(join)

# A worker whose run has ended may have been granted a lock that nobody waits for.
for lock in locks:
    if lock.owned():
        lock.release()
