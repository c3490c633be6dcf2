"""Locks for programs with threads."""

import threading
import time

import redis

from ._terms import LockLost, NoAnswer, NotGranted, Refused, Term, Wish, own_connection


class Locks:
    """Takes locks at one daemon.

    `url` is redis-py's (`redis://`, `rediss://`, `unix://`), and so are
    `options`: `password`, `ssl_ca_certs`, `client_name` and so on. `timeout_s` is
    how long an answer may take, beyond the wait where there is one. `retries` is
    how often LOCK is sent again when no answer came: on a new connection, after
    the old one was closed, which ends what the daemon had from it.
    """

    def __init__(self, url, *, timeout_s=5.0, retries=0, **options):
        if not timeout_s > 0:
            raise ValueError("timeout_s is more than 0")
        self._url, self._timeout_s, self._retries = url, timeout_s, retries
        self._options = options
        self._line().close()  # Tells at once of options that redis-py does not know.

    def acquire(
        self, name, *, wait_s=10.0, ttl_s=None, shared=False, of=1, on_lost=None
    ):
        """Waits for a lock; a `Held`, to be released or used with `with`.

        `wait_s` is how long to wait for the grant: 0 to take it or leave it, None
        for ever. With `ttl_s` the lock is a lease, renewed at a third of it;
        without, it belongs to a connection that is opened for it. `shared` for a
        reader's lock, `of` for one of so many places.

        `on_lost(held)` is called once, by a thread of its own, when the lock is
        lost before it is released: for a lease at its end at the latest, also
        when the daemon does not answer; without a lease at most 4/3 of the
        timeout after the daemon's last sign.

        Raises NotGranted, NoAnswer, Refused, or LockLost if the lease ended
        before its grant was known.
        """
        wish = Wish(name, wait_s, ttl_s, shared, of)
        end = None if wait_s is None else time.monotonic() + wait_s
        for left in range(self._retries, -1, -1):
            line = self._line()
            try:
                return self._attempt(wish, line, end, on_lost)
            except NoAnswer:
                if not left:
                    raise
            time.sleep(self._timeout_s / 4)  # A daemon that starts again needs a moment.

    def _line(self):
        return Line(self._url, self._timeout_s, self._options)

    def _attempt(self, wish, line, end, on_lost):
        """One LOCK on a connection of its own, which stays open if it is granted."""
        try:
            sent = time.monotonic()
            left_s = None if end is None else max(0.0, end - sent)
            limit_s = None if left_s is None else left_s + self._timeout_s
            first_s = wish.first_s(self._timeout_s)
            token = line.ask(wish.lock(left_s, first_s), limit_s)
            if token is None:
                raise NotGranted(f"{wish.name}: taken by others for {wish.wait_s} s")
            term = Term(first_s, self._timeout_s, sent)
            if first_s != wish.ttl_s or term.left_s() < 2 * term.every_s:
                term = self._begin(wish, token, line)
            return Held(wish, token, term, line, self._line, on_lost)
        except BaseException:
            line.close()
            raise

    def _begin(self, wish, token, line):
        """Gives a lease its whole length, from now on: it began at an unknown time."""
        sent = time.monotonic()
        try:
            line.ask(wish.renew(token), self._timeout_s)
        except Refused as error:
            raise LockLost(f"{wish.name}: the lease ended before it was known") from error
        except NoAnswer:
            self._give_back(wish, token)
            raise
        return Term(wish.ttl_s, self._timeout_s, sent)

    def _give_back(self, wish, token):
        """Spares the next one the rest of a lease that nobody will use."""
        line = self._line()
        try:
            line.ask(wish.unlock(token), self._timeout_s)
        except (NoAnswer, Refused):
            pass  # It ends by itself, after the timeout.
        finally:
            line.close()


class Held:
    """A lock that was granted. Use it with `with`, or call `release`."""

    def __init__(self, wish, token, term, line, new_line, on_lost):
        self.name = wish.name
        #: The fencing token: larger than that of every earlier grant.
        self.token = token
        self._wish, self._term = wish, term
        self._line, self._new_line = line, new_line
        self._on_lost, self._reason = on_lost, None
        self._ending = threading.Lock()
        self._released, self._over = False, threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        if wish.ttl_s is not None:
            # The keeper may be waiting for an answer when the lease ends.
            threading.Thread(target=self._watch, daemon=True).start()

    @property
    def lost(self):
        """Whether somebody else may hold the lock by now."""
        return self._reason is not None or (not self._released and self._term.is_over())

    def check(self):
        """Raises LockLost if the lock is lost: call it before what must not happen twice."""
        if self.lost:
            raise LockLost(self._why())

    def release(self):
        """Gives the lock back. Raises LockLost unless it was held until now.

        If it returns, the daemon has confirmed that the lock was held from its
        grant to this moment.
        """
        if self._released:
            return
        self._over.set()
        if threading.current_thread() is not self._keeper:
            self._keeper.join()
        try:
            self.check()
            self._unlock()
            self._released = True
        except (NoAnswer, Refused) as error:
            self._end(f"its release was not confirmed: {error}")
            raise LockLost(self._why()) from error
        finally:
            self._line.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.release()
        except LockLost:
            if kind is None:
                raise  # Else what went wrong in the block says more.

    def _unlock(self):
        words = self._wish.unlock(self.token)
        try:
            self._line.ask(words, self._term.answer_s)
        except NoAnswer:
            if self._wish.ttl_s is None:
                raise  # The connection is gone, and the lock with it.
            self._line = self._new_line()
            self._line.ask(words, self._term.answer_s)

    def _keep(self):
        """Renews a lease; without one, asks whether the connection lives."""
        try:
            self._keep_on()
        finally:
            if self._reason is not None:
                self._line.close()

    def _keep_on(self):
        pause_s = self._term.every_s
        while not self._over.wait(pause_s):
            pause_s = self._term.every_s
            try:
                self._confirm()
            except Refused as error:
                self._lose(f"the daemon says: {error}")
            except NoAnswer as error:
                if self._wish.ttl_s is None:
                    self._lose(str(error))
                self._line = self._new_line()
                pause_s /= 4

    def _confirm(self):
        sent = time.monotonic()
        lease = self._wish.ttl_s is not None
        words = self._wish.renew(self.token) if lease else ["PING"]
        self._line.ask(words, self._term.answer_s)
        self._term.extend(sent)

    def _watch(self):
        left_s = self._term.left_s()
        while left_s > 0:
            if self._over.wait(left_s):
                return
            left_s = self._term.left_s()
        self._lose("the lease ended, and no renewal was answered")

    def _end(self, reason):
        """Marks it as lost, which is final; False if it was over before."""
        with self._ending:
            if self._reason is not None or self._released:
                return False
            self._reason = reason
            return True

    def _lose(self, reason):
        if self._over.is_set() or not self._end(reason):
            return
        self._over.set()
        if self._on_lost is not None:
            self._on_lost(self)

    def _why(self):
        reason = self._reason or "the lease ended, and no renewal was answered"
        return f"{self.name} (token {self.token}): {reason}"


class Line:
    """A connection of one lock's own; what is not answered in time closes it."""

    def __init__(self, url, timeout_s, options):
        settings = own_connection(timeout_s, options)
        pool = redis.ConnectionPool.from_url(url, **settings)
        self._connection = pool.make_connection()

    def ask(self, words, limit_s):
        """The reply, or NoAnswer or Refused; waits for at most `limit_s` (None: for ever)."""
        try:
            self._connection.send_command(*words)
            if not self._connection.can_read(limit_s):
                raise redis.TimeoutError(f"no answer to {words[0]} within {limit_s:.3g} s")
            return self._connection.read_response()
        except (redis.ResponseError, redis.AuthenticationError) as error:
            raise Refused(str(error)) from error
        except (redis.RedisError, OSError) as error:
            self.close()
            raise NoAnswer(str(error)) from error
        except BaseException:  # An interrupt: the answer would be taken for the next one's.
            self.close()
            raise

    def close(self):
        self._connection.disconnect()
