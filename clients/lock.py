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


@contextmanager
def lock(client, name, ttl_ms=10_000, wait_ms=5_000):
    """Holds a lock for as long as the block runs; yields (token, lost).

    The lease is renewed three times within its length. Check `lost` before
    anything that must not happen twice, and hand the token to whatever you
    write to: it can refuse tokens smaller than the largest it has seen.

    Unlocking by token works from any connection, so this is right with a pool.
    """
    token = client.execute_command("LOCK", name, "TTL", ttl_ms, "WAIT", wait_ms)
    if token is None:
        raise TimeoutError(f"somebody else has had {name} for {wait_ms} ms")
    lost, done = threading.Event(), threading.Event()

    def keep():
        while not done.wait(ttl_ms / 3000):
            try:
                client.execute_command("RENEW", name, token, "TTL", ttl_ms)
            except redis.ResponseError:
                lost.set()
                return
            except redis.RedisError:
                pass  # Not reached: the next attempt may still be in time.

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield token, lost
    finally:
        done.set()
        keeper.join()
        try:
            client.execute_command("UNLOCK", name, token)
        except redis.ResponseError as error:
            raise Lost(name) from error


def main():
    host, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    # The read timeout must be longer than the longest wait.
    client = redis.Redis(host, port, socket_timeout=10)
    with lock(client, name, ttl_ms=300) as (token, lost):
        print(f"holding {name} with token {token}")
        time.sleep(0.5)  # The work: longer than the lease, which is renewed.
        assert not lost.is_set()
    print("released")


if __name__ == "__main__":
    main()
