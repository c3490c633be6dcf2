"""Takes a lock with a lease, renews it while working, releases it by its token.

    pip install redis
    python lock.py 127.0.0.1 2626 job
"""

import sys
import threading
import time
from contextlib import contextmanager

import redis


class Lost(Exception):
    """The lease has run out: somebody else may hold the lock."""


class Lease:
    """A lock that is held for a time, which renewals extend.

    Its end is counted on this machine, from before each request was sent: so it
    is reached here first, also if the daemon cannot be asked any more.
    """

    def __init__(self, client, name, token, ttl_ms):
        self.token = token
        self._client, self._name, self._ttl_ms = client, name, ttl_ms
        self._end = 0

    def is_lost(self):
        """Whether somebody else may hold the lock by now."""
        return time.monotonic() >= self._end

    def renew(self):
        """Lets it end its whole length from now; an error of redis if not."""
        sent = time.monotonic()
        args = (self._name, self.token, "TTL", self._ttl_ms)
        self._client.execute_command("RENEW", *args)
        self._end = sent + self._ttl_ms / 1000


@contextmanager
def lock(client, name, ttl_ms=10_000, wait_ms=5_000):
    """Holds a lock for as long as the block runs; yields its Lease.

    The lease is renewed three times within its length. Ask `is_lost()` before
    anything that must not happen twice, and hand the token to whatever you write
    to: it can refuse tokens smaller than the largest it has seen. Raises Lost at
    the end if the lease was lost on the way.

    Unlocking by token works from any connection, so this is right with a pool,
    unless its connections can all be waiting for locks: renewals and releases
    then find none.
    """
    token = client.execute_command("LOCK", name, "TTL", ttl_ms, "WAIT", wait_ms)
    if token is None:
        raise TimeoutError(f"somebody else has had {name} for {wait_ms} ms")
    lease = Lease(client, name, token, ttl_ms)
    # The lease began with the grant, and nobody here knows when that was.
    try:
        lease.renew()
    except redis.RedisError as error:
        raise Lost(name) from error
    done = threading.Event()

    def keep():
        while not done.wait(ttl_ms / 3000):
            try:
                lease.renew()
            except redis.ResponseError:
                lease._end = 0
                return
            except redis.RedisError:
                pass  # Not reached: the next attempt may still be in time.

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield lease
    finally:
        done.set()
        keeper.join()
        lost = lease.is_lost()
        try:
            client.execute_command("UNLOCK", name, token)
        except redis.RedisError as error:
            raise Lost(name) from error
        if lost:
            raise Lost(name)


def main():
    host, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    # The read timeout must be longer than the longest wait.
    client = redis.Redis(host, port, socket_timeout=10)
    with lock(client, name, ttl_ms=300) as lease:
        print(f"holding {name} with token {lease.token}")
        time.sleep(0.5)  # The work: longer than the lease, which is renewed.
        assert not lease.is_lost()
    print("released")


if __name__ == "__main__":
    main()
