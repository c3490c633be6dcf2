"""Locks for programs with threads."""

import time

from ._kept import Held, HeldAll
from ._line import Line
from ._session import Session
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


class Locks:
    """Takes locks at one daemon.

    `url` is redis-py's (`redis://`, `rediss://`, `unix://`), and so are
    `options`: `password`, `ssl_ca_certs`, `client_name` and so on. `timeout_s` is
    how long an answer may take, beyond the wait where there is one. `retries` is
    how often a request is sent again when no answer came: on a new connection,
    after the old one was closed, which ends what the daemon had from it.
    """

    def __init__(self, url, *, timeout_s=5.0, retries=0, **options):
        if not timeout_s > 0:
            raise ValueError("timeout_s is more than 0")
        self._url, self._timeout_s, self._retries = url, timeout_s, retries
        self._options, self._addresses = options, Addresses()
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
        timeout after the daemon's last sign, and 8.5 s after the request for it.

        Raises NotGranted, NoAnswer, Refused, or LockLost if the lease ended
        before its grant was known.
        """
        return self._take(Wish(name, wait_s, ttl_s, shared, of), Held, on_lost)

    def acquire_all(self, names, *, wait_s=10.0, ttl_s=None, on_lost=None):
        """Waits for several exclusive locks, all or none; a `HeldAll`.

        Two programs that both use it do not block each other, in whatever order
        they name the locks. Everything else is as `acquire` has it. All of them
        are lost as soon as one is.
        """
        if isinstance(names, (str, bytes)):
            raise ValueError("names are several: give a list")
        return self._take(WishAll(tuple(names), wait_s, ttl_s), HeldAll, on_lost)

    def session(self, *, ttl_s=30.0, id=None, on_lost=None):
        """Opens a session, which owns many locks and is renewed for all of them.

        It is renewed at a third of `ttl_s`, and lost as a lease is. `on_lost(session)`
        is called once, by a thread of its own. With `id` it takes up a session that
        was opened before, by this program or by one that has ended, with the same
        `ttl_s`: LockLost if it is over.
        """
        wish = SessionWish(ttl_s)
        return self._try_often(lambda line: self._open(wish, id, line, on_lost))

    def _line(self):
        return Line(self._url, self._timeout_s, self._options, self._addresses)

    def _try_often(self, attempt):
        """What `attempt` makes of a connection of its own, which it closes if it fails."""
        for left in range(self._retries, -1, -1):
            line = self._line()
            try:
                return attempt(line)
            except NoAnswer:
                line.close()
                if not left:
                    raise
            except BaseException:
                line.close()
                raise
            time.sleep(self._timeout_s / 4)  # A daemon that starts again needs a moment.

    def _take(self, wish, kind, on_lost):
        end = end_of(wish)
        return self._try_often(lambda line: self._attempt(wish, kind, line, end, on_lost))

    def _attempt(self, wish, kind, line, end, on_lost):
        sent = time.monotonic()
        lease_s = first_s(wish.ttl_s, self._timeout_s)
        grant = self._lock(wish, line, end, lease_s)
        term = Term(wish.ttl_s, self._timeout_s, sent, lease_s)
        if term.is_late():
            term = self._begin(wish, grant, line)
        return kind(wish, grant, term, line, self._line, on_lost)

    def _lock(self, wish, line, end, lease_s):
        """Sends the request and waits; the grant."""
        left_s = None if end is None else max(0.0, end - time.monotonic())
        limit_s = None if left_s is None else left_s + self._timeout_s
        reply = line.ask(wish.lock(left_s, lease_s), limit_s)
        if reply is None:
            raise NotGranted(f"{wish.name}: taken by others for {wish.wait_s} s")
        return wish.grant(reply)

    def _begin(self, wish, grant, line):
        """Gives it its whole length, from now on: it began at an unknown time."""
        sent = time.monotonic()
        try:
            line.ask_all(wish.renew(grant), self._timeout_s)
        except Refused as error:
            raise LockLost(f"{wish.name}: the lease ended before it was known") from error
        except BaseException:  # Also an interruption.
            if wish.ttl_s is not None:
                self._give_back(wish, grant)
            raise
        return Term(wish.ttl_s, self._timeout_s, sent)

    def _give_back(self, wish, grant):
        """Spares the next one the rest of a lease that nobody will use."""
        line = self._line()
        try:
            line.ask_all(wish.unlock(grant), self._timeout_s)
        except (NoAnswer, Refused):
            pass  # It ends by itself, after four timeouts at most.
        finally:
            line.close()

    def _open(self, wish, id, line, on_lost):
        sent = time.monotonic()
        if id is None:
            id = line.ask(wish.open(), self._timeout_s)
        else:
            try:
                line.ask_all(wish.renew(id), self._timeout_s)
            except Refused as error:
                raise LockLost(f"{wish.title(id)}: {error}") from error
        term = Term(wish.ttl_s, self._timeout_s, sent)
        return Session(self, wish, id, term, line, on_lost)

    def _lock_in_session(self, wish, doubt):
        """The token of a lock that belongs to a session.

        `doubt(name)` is called for each request whose answer nobody will read.
        """
        end = end_of(wish)

        def attempt(line):
            try:
                token = self._lock(wish, line, end, None)
                line.close()  # The session owns it.
            except (NotGranted, Refused):
                raise
            except BaseException:
                doubt(wish.name)
                raise
            return token

        return self._try_often(attempt)


def end_of(wish):
    return None if wish.wait_s is None else time.monotonic() + wish.wait_s
