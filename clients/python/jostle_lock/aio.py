"""Locks for programs with asyncio: `jostle_lock`'s words, awaited.

    from jostle_lock.aio import Locks

    locks = Locks("redis://127.0.0.1:2626")
    async with await locks.acquire("job", wait_s=5, ttl_s=10) as held:
        await write(result, held.token)
"""

import asyncio
import inspect
import time

import redis.asyncio

from ._terms import LockLost, NoAnswer, NotGranted, Refused, Term, Wish, own_connection


class Locks:
    """Takes locks at one daemon; arguments as `jostle_lock.Locks` has them."""

    def __init__(self, url, *, timeout_s=5.0, retries=0, **options):
        if not timeout_s > 0:
            raise ValueError("timeout_s is more than 0")
        self._url, self._timeout_s, self._retries = url, timeout_s, retries
        self._options = options
        self._line()  # Tells at once of options that redis-py does not know.

    async def acquire(
        self, name, *, wait_s=10.0, ttl_s=None, shared=False, of=1, on_lost=None
    ):
        """Waits for a lock, as `jostle_lock.Locks.acquire` does; a `Held`.

        `on_lost(held)` may be a coroutine function; it runs in a task of its
        own. A task that is cancelled while it waits leaves the line.
        """
        wish = Wish(name, wait_s, ttl_s, shared, of)
        end = None if wait_s is None else time.monotonic() + wait_s
        for left in range(self._retries, -1, -1):
            line = self._line()
            try:
                return await self._attempt(wish, line, end, on_lost)
            except NoAnswer:
                if not left:
                    raise
            # A daemon that starts again needs a moment.
            await asyncio.sleep(self._timeout_s / 4)

    def _line(self):
        return Line(self._url, self._timeout_s, self._options)

    async def _attempt(self, wish, line, end, on_lost):
        """One LOCK on a connection of its own, which stays open if it is granted."""
        try:
            sent = time.monotonic()
            left_s = None if end is None else max(0.0, end - sent)
            limit_s = None if left_s is None else left_s + self._timeout_s
            first_s = wish.first_s(self._timeout_s)
            token = await line.ask(wish.lock(left_s, first_s), limit_s)
            if token is None:
                raise NotGranted(f"{wish.name}: taken by others for {wish.wait_s} s")
            term = Term(first_s, self._timeout_s, sent)
            if first_s != wish.ttl_s or term.left_s() < 2 * term.every_s:
                term = await self._begin(wish, token, line)
            return Held(wish, token, term, line, self._line, on_lost)
        except BaseException:
            await line.close()
            raise

    async def _begin(self, wish, token, line):
        """Gives a lease its whole length, from now on: it began at an unknown time."""
        sent = time.monotonic()
        try:
            await line.ask(wish.renew(token), self._timeout_s)
        except Refused as error:
            raise LockLost(f"{wish.name}: the lease ended before it was known") from error
        except NoAnswer:
            await self._give_back(wish, token)
            raise
        return Term(wish.ttl_s, self._timeout_s, sent)

    async def _give_back(self, wish, token):
        """Spares the next one the rest of a lease that nobody will use."""
        line = self._line()
        try:
            await line.ask(wish.unlock(token), self._timeout_s)
        except (NoAnswer, Refused):
            pass  # It ends by itself, after the timeout.
        finally:
            await line.close()


class Held:
    """A lock that was granted. Use it with `async with`, or call `release`."""

    def __init__(self, wish, token, term, line, new_line, on_lost):
        self.name = wish.name
        #: The fencing token: larger than that of every earlier grant.
        self.token = token
        self._wish, self._term = wish, term
        self._line, self._new_line = line, new_line
        self._on_lost, self._reason = on_lost, None
        self._released, self._over = False, asyncio.Event()
        self._keeper = asyncio.ensure_future(self._keep())
        # The keeper may be waiting for an answer when the lease ends.
        self._watcher = asyncio.ensure_future(self._watch())
        self._told = None

    @property
    def lost(self):
        """Whether somebody else may hold the lock by now."""
        return self._reason is not None or (not self._released and self._term.is_over())

    def check(self):
        """Raises LockLost if the lock is lost: call it before what must not happen twice."""
        if self.lost:
            raise LockLost(self._why())

    async def release(self):
        """Gives the lock back. Raises LockLost unless it was held until now.

        If it returns, the daemon has confirmed that the lock was held from its
        grant to this moment.
        """
        if self._released:
            return
        self._over.set()
        self._watcher.cancel()
        try:
            await asyncio.wait([self._keeper])
            self.check()
            await self._unlock()
            self._released = True
        except (NoAnswer, Refused) as error:
            self._reason = f"its release was not confirmed: {error}"
            raise LockLost(self._why()) from error
        finally:
            await self._line.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        try:
            await self.release()
        except LockLost:
            if kind is None:
                raise  # Else what went wrong in the block says more.

    async def _unlock(self):
        words = self._wish.unlock(self.token)
        try:
            await self._line.ask(words, self._term.answer_s)
        except NoAnswer:
            if self._wish.ttl_s is None:
                raise  # The connection is gone, and the lock with it.
            self._line = self._new_line()
            await self._line.ask(words, self._term.answer_s)

    async def _keep(self):
        """Renews a lease; without one, asks whether the connection lives."""
        pause_s = self._term.every_s
        while not await self._is_over_within(pause_s):
            pause_s = self._term.every_s
            try:
                await self._confirm()
            except Refused as error:
                self._lose(f"the daemon says: {error}")
            except NoAnswer as error:
                if self._wish.ttl_s is None:
                    self._lose(str(error))
                self._line = self._new_line()
                pause_s /= 4
        if self._reason is not None:
            await self._line.close()

    async def _is_over_within(self, limit_s):
        try:
            await asyncio.wait_for(self._over.wait(), limit_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def _confirm(self):
        sent = time.monotonic()
        lease = self._wish.ttl_s is not None
        words = self._wish.renew(self.token) if lease else ["PING"]
        await self._line.ask(words, self._term.answer_s)
        self._term.extend(sent)

    async def _watch(self):
        if self._wish.ttl_s is None:
            return
        left_s = self._term.left_s()
        while left_s > 0:
            await asyncio.sleep(left_s)
            left_s = self._term.left_s()
        self._lose("the lease ended, and no renewal was answered")

    def _lose(self, reason):
        """Marks it as lost, which is final, and tells once."""
        if self._over.is_set() or self._reason is not None:
            return
        self._reason = reason
        self._over.set()
        if self._on_lost is not None:
            self._told = asyncio.ensure_future(self._tell())

    async def _tell(self):
        said = self._on_lost(self)
        if inspect.isawaitable(said):
            await said

    def _why(self):
        reason = self._reason or "the lease ended, and no renewal was answered"
        return f"{self.name} (token {self.token}): {reason}"


class Line:
    """A connection of one lock's own; what is not answered in time closes it."""

    def __init__(self, url, timeout_s, options):
        settings = own_connection(timeout_s, options)
        settings["socket_timeout"] = None  # It would end a wait; `ask` has the limits.
        pool = redis.asyncio.ConnectionPool.from_url(url, **settings)
        self._connection, self._timeout_s = pool.make_connection(), timeout_s

    async def ask(self, words, limit_s):
        """The reply, or NoAnswer or Refused; waits for at most `limit_s` (None: for ever)."""
        try:
            return await asyncio.wait_for(self._exchange(words), limit_s)
        except (redis.ResponseError, redis.AuthenticationError) as error:
            raise Refused(str(error)) from error
        except (redis.RedisError, OSError, asyncio.TimeoutError) as error:
            await self.close()
            raise NoAnswer(str(error) or f"no answer to {words[0]} in time") from error
        except BaseException:  # Cancelled: the answer would be taken for the next one's.
            await self.close()
            raise

    async def _exchange(self, words):
        await asyncio.wait_for(self._connection.connect(), self._timeout_s)
        await self._connection.send_command(*words)
        return await self._connection.read_response()

    async def close(self):
        await self._connection.disconnect(nowait=True)
