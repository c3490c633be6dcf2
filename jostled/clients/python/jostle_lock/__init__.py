"""Locks of jostled, on redis-py.

    from jostle_lock import Locks

    locks = Locks("redis://127.0.0.1:2626")
    with locks.acquire("job", wait_s=5, ttl_s=10) as held:
        write(result, held.token)
    with locks.acquire_all(["from", "to"], wait_s=5, ttl_s=10) as held:
        move(amount, held.tokens["from"], held.tokens["to"])
    with locks.session(ttl_s=30) as session, session.acquire("job") as held:
        write(result, held.token)

`jostle_lock.aio` has the same for asyncio. Four words have one meaning each:

wait     How long the daemon lets a request wait for the grant.
timeout  How long an answer may take beyond that. When it passes, the connection
         is closed, so that neither a waiter nor a lock that nobody knows of
         stays behind.
lost     The lock is known, or must be feared, to be somebody else's: `held.lost`,
         and the callback `on_lost`.
token    The fencing token: hand it to whatever you write to, which refuses a
         token smaller than the largest it has seen.
"""

from ._kept import Held, HeldAll
from ._session import Session, SessionHeld
from ._sync import Locks
from ._terms import LockError, LockLost, NoAnswer, NotGranted, Refused

__all__ = [
    "Held",
    "HeldAll",
    "LockError",
    "LockLost",
    "Locks",
    "NoAnswer",
    "NotGranted",
    "Refused",
    "Session",
    "SessionHeld",
]
