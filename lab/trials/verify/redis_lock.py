"""A lease in Redis: redis_lock.py HOST:PORT LEASE_MS KIND, by SET NX PX and scripts that look whose
key it is. The password is in $REDISCLI_AUTH.

deletes: an owner deletes the key without looking.
reconnects: what is not answered goes out again over a new connection; a renewal does not look.
looks: neither.
allkeys-lru, noeviction: as `looks`, beside a cache in the same memory, with that policy.
"""

import os
import socket
import sys
import threading
import time

from peer import serve
from resp import Redis

place, lease, kind = sys.argv[1:]
host, port = place.rsplit(":", 1)
socket.setdefaulttimeout(0.5)
SAME = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call("
DELETE, PROLONG = SAME + "'del', KEYS[1]) end", SAME + "'pexpire', KEYS[1], ARGV[2]) end"
PAGE = "x" * 20_000
client, owned = None, {}


def connected():
    connection = Redis(host, int(port))
    if "REDISCLI_AUTH" in os.environ:
        connection("AUTH", os.environ["REDISCLI_AUTH"])
    return connection


def ask(*words):
    """Asks again, over a new connection, if the old one has failed."""
    global client
    while True:
        try:
            client = client or connected()
            return client(*words)
        except OSError:
            client = None
            time.sleep(0.01)


def fill():
    """A cache: pages that live for a second."""
    cache = connected()
    while True:
        try:
            cache("SET", f"page:{os.urandom(8).hex()}", PAGE, "PX", 1000)
            time.sleep(0.002)
        except RuntimeError:
            time.sleep(0.05)


def join(worker, keys):
    if kind in ("allkeys-lru", "noeviction"):
        ask("CONFIG", "SET", "maxmemory", "8mb")
        ask("CONFIG", "SET", "maxmemory-policy", kind)
        threading.Thread(target=fill, daemon=True).start()
    return f"timeout renew lease={lease}", acquire, release, renew


def acquire(key, shared, ms):
    until, value = time.monotonic() + ms / 1000, os.urandom(8).hex()
    while True:
        try:
            if ask("SET", f"lock:{key}", value, "NX", "PX", lease) == b"OK":
                owned[key] = value
                return True
        except RuntimeError as error:
            if "OOM" not in str(error):
                raise
        if 0 <= ms and time.monotonic() >= until:
            return False
        time.sleep(0.001)


def release(key):
    if kind == "deletes":
        ask("DEL", f"lock:{key}")
        return True
    return ask("EVAL", DELETE, 1, f"lock:{key}", owned.pop(key)) == 1


def renew(key, ms):
    if kind == "reconnects":
        ask("PEXPIRE", f"lock:{key}", ms)
        return True
    return ask("EVAL", PROLONG, 1, f"lock:{key}", owned[key], ms) == 1


serve(join)
