"""Locks of Python libraries in Redis, of libraries in $PLACE/py: found_redis.py KIND HOST:PORT.

redis-py: Lock of redis-py 2.9, which keeps the end of its lease as the key's value; 300 ms.
python-redis-lock: its Lock, whose waiters block in BLPOP; a lease of 2 s.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.environ["PLACE"], "py"))
import redis
from peer import serve

kind, place = sys.argv[1:]
host, port = place.rsplit(":", 1)
client = redis.StrictRedis(host, int(port), password=os.environ.get("REDISCLI_AUTH"))
held = {}

if kind == "redis-py":
    LEASE, lost = 300, ()
else:
    import redis_lock

    LEASE, lost = 2000, redis_lock.NotAcquired


def lock_of(key):
    if kind == "redis-py":
        return client.lock(f"lock:{key}", timeout=LEASE / 1000, sleep=0.001)
    return redis_lock.Lock(client, f"lock:{key}", expire=LEASE // 1000)


def acquire(key, shared, ms):
    lock, until = lock_of(key), time.monotonic() + ms / 1000
    while not lock.acquire(blocking=ms < 0):
        if 0 <= ms and time.monotonic() >= until:
            return False
        time.sleep(0.001)
    held[key] = lock
    return True


def release(key):
    try:
        held.pop(key).release()
    except lost:
        return False


serve(lambda worker, keys: (f"timeout lease={LEASE}", acquire, release))
