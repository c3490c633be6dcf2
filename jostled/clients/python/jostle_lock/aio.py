"""Locks for programs with asyncio: `jostle_lock`'s words, awaited.

    from jostle_lock.aio import Locks

    locks = Locks("redis://127.0.0.1:2626")
    async with await locks.acquire("job", wait_s=5, ttl_s=10) as held:
        await write(result, held.token)
    async with await locks.acquire_all(["from", "to"], wait_s=5, ttl_s=10) as held:
        await move(amount, held.tokens["from"], held.tokens["to"])
    async with await locks.session(ttl_s=30) as session:
        async with await session.acquire("job") as held:
            await write(result, held.token)
"""

import asyncio
import time

from ._aio_kept import Held, HeldAll
from ._aio_line import Line
from ._aio_session import Session, SessionHeld
from ._terms import (
    Addresses,
    LockLost,
    NoAnswer,
    NotGranted,
    Refused,
    SessionWish,
    Term,
    Wish,
    WishAll,
    first_s,
)

__all__ = ["Held", "HeldAll", "Locks", "Session", "SessionHeld"]


class Locks:
    """Takes locks at one daemon; arguments as `jostle_lock.Locks` has them."""

    def __init__(self, url, *, timeout_s=5.0, retries=0, **options):
        if not timeout_s > 0:
            raise ValueError("timeout_s is more than 0")
        self._url, self._timeout_s, self._retries = url, timeout_s, retries
        self._options, self._addresses = options, Addresses()
        self._line()  # Tells at once of options that redis-py does not know.

    async def acquire(
        self, name, *, wait_s=10.0, ttl_s=None, shared=False, of=1, on_lost=None
    ):
        """Waits for a lock, as `jostle_lock.Locks.acquire` does; a `Held`.

        `on_lost(held)` may be a coroutine function; it runs in a task of its
        own. A task that is cancelled while it waits leaves the line.
        """
        return await self._take(Wish(name, wait_s, ttl_s, shared, of), Held, on_lost)

    async def acquire_all(self, names, *, wait_s=10.0, ttl_s=None, on_lost=None):
        """Waits for several exclusive locks, all or none; a `HeldAll`."""
        if isinstance(names, (str, bytes)):
            raise ValueError("names are several: give a list")
        return await self._take(WishAll(tuple(names), wait_s, ttl_s), HeldAll, on_lost)

    async def session(self, *, ttl_s=30.0, id=None, on_lost=None):
        """Opens a session, as `jostle_lock.Locks.session` does, or takes one up."""
        wish = SessionWish(ttl_s)
        return await self._try_often(lambda line: self._open(wish, id, line, on_lost))

    def _line(self):
        return Line(self._url, self._timeout_s, self._options, self._addresses)

    async def _try_often(self, attempt):
        """What `attempt` makes of a connection of its own, which is closed if it fails."""
        for left in range(self._retries, -1, -1):
            line = self._line()
            try:
                return await attempt(line)
            except NoAnswer:
                await line.close()
                if not left:
                    raise
            except BaseException:
                await line.close()
                raise
            # A daemon that starts again needs a moment.
            await asyncio.sleep(self._timeout_s / 4)

    async def _take(self, wish, kind, on_lost):
        end = end_of(wish)
        return await self._try_often(
            lambda line: self._attempt(wish, kind, line, end, on_lost)
        )

    async def _attempt(self, wish, kind, line, end, on_lost):
        sent = time.monotonic()
        lease_s = first_s(wish.ttl_s, self._timeout_s)
        grant = await self._lock(wish, line, end, lease_s)
        term = Term(wish.ttl_s, self._timeout_s, sent, lease_s)
        if term.is_late():
            term = await self._begin(wish, grant, line)
        return kind(wish, grant, term, line, self._line, on_lost)

    async def _lock(self, wish, line, end, lease_s):
        """Sends the request and waits; the grant."""
        left_s = None if end is None else max(0.0, end - time.monotonic())
        limit_s = None if left_s is None else left_s + self._timeout_s
        reply = await line.ask(wish.lock(left_s, lease_s), limit_s)
        if reply is None:
            raise NotGranted(f"{wish.name}: taken by others for {wish.wait_s} s")
        return wish.grant(reply)

    async def _begin(self, wish, grant, line):
        """Gives it its whole length, from now on: it began at an unknown time."""
        sent = time.monotonic()
        try:
            await line.ask_all(wish.renew(grant), self._timeout_s)
        except Refused as error:
            raise LockLost(f"{wish.name}: the lease ended before it was known") from error
        except BaseException:  # Also a cancellation.
            if wish.ttl_s is not None:
                await asyncio.shield(self._give_back(wish, grant))
            raise
        return Term(wish.ttl_s, self._timeout_s, sent)

    async def _give_back(self, wish, grant):
        """Spares the next one the rest of a lease that nobody will use."""
        line = self._line()
        try:
            await line.ask_all(wish.unlock(grant), self._timeout_s)
        except (NoAnswer, Refused):
            pass  # It ends by itself, after four timeouts at most.
        finally:
            await line.close()

    async def _open(self, wish, id, line, on_lost):
        sent = time.monotonic()
        if id is None:
            id = await line.ask(wish.open(), self._timeout_s)
        else:
            try:
                await line.ask_all(wish.renew(id), self._timeout_s)
            except Refused as error:
                raise LockLost(f"{wish.title(id)}: {error}") from error
        term = Term(wish.ttl_s, self._timeout_s, sent)
        return Session(self, wish, id, term, line, on_lost)

    async def _lock_in_session(self, wish, doubt):
        """The token of a lock that belongs to a session.

        `doubt(name)` is called for each request whose answer nobody will read.
        """
        end = end_of(wish)

        async def attempt(line):
            try:
                token = await self._lock(wish, line, end, None)
                await line.close()  # The session owns it.
            except (NotGranted, Refused):
                raise
            except BaseException:
                doubt(wish.name)
                raise
            return token

        return await self._try_often(attempt)


def end_of(wish):
    return None if wish.wait_s is None else time.monotonic() + wish.wait_s
