"""What was granted, and the threads that keep it."""

import threading
import time

from ._terms import LOOK_S, UNRENEWED, LockLost, NoAnswer, Refused


class Kept:
    """Something that a connection owns, or that is renewed until it is released."""

    def __init__(self, wish, grant, term, line, new_line, on_lost):
        self._wish, self._grant, self._term = wish, grant, term
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

    def _finish(self):
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
            self._finish()
        except LockLost:
            if kind is None:
                raise  # Else what went wrong in the block says more.

    def _unlock(self):
        commands = self._wish.unlock(self._grant)
        try:
            self._line.ask_all(commands, self._term.answer_s)
        except NoAnswer:
            if self._wish.ttl_s is None:
                raise  # The connection is gone, and the lock with it.
            self._line = self._new_line()
            self._line.ask_all(commands, self._term.answer_s)

    def _keep(self):
        """Renews a lease; without one, asks whether the connection lives."""
        try:
            self._keep_on()
        finally:
            if self._reason is not None:
                self._line.close()

    def _keep_on(self):
        pause_s = self._term.first_every_s
        while not self._is_over_within(pause_s):
            pause_s = self._term.every_s
            try:
                self._confirm()
            except Refused as error:
                self._lose(f"the daemon says: {error}")
            except NoAnswer as error:
                if self._wish.ttl_s is None:
                    self._lose(str(error))
                self._line = self._new_line()
                pause_s = self._term.again_s

    def _is_over_within(self, limit_s):
        """Waits; for a shorter time if the connection ends, which a lease then replaces."""
        end = time.monotonic() + limit_s
        while (left_s := end - time.monotonic()) > 0:
            if self._over.wait(min(left_s, LOOK_S)):
                return True
            if self._line.is_broken():
                if self._wish.ttl_s is None:
                    self._lose("the connection has ended")
                self._line.close()
                self._line = self._new_line()
                break
        return self._over.is_set()

    def _confirm(self):
        sent = time.monotonic()
        limit_s = max(0.0, min(self._term.answer_s, self._term.left_s()))
        self._line.ask_all(self._wish.renew(self._grant), limit_s)
        self._term.extend(sent)

    def _watch(self):
        left_s = self._term.left_s()
        while left_s > 0:
            if self._over.wait(left_s):
                return
            left_s = self._term.left_s()
        self._lose(UNRENEWED)

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
        reason = self._reason or UNRENEWED
        return f"{self._wish.title(self._grant)}: {reason}"


class Lock(Kept):
    """One lock or several, which are released."""

    def release(self):
        """Gives the lock back. Raises LockLost unless it was held until now.

        If it returns, the daemon has confirmed that the lock was held from its
        grant to this moment.
        """
        self._finish()


class Held(Lock):
    """A lock that was granted. Use it with `with`, or call `release`."""

    @property
    def name(self):
        return self._wish.name

    @property
    def token(self):
        """The fencing token: larger than that of every earlier grant."""
        return self._grant


class HeldAll(Lock):
    """Several locks that were granted in one step, and are released together."""

    @property
    def names(self):
        return self._wish.names

    @property
    def tokens(self):
        """The fencing token of each name, larger than those of every earlier grant."""
        return self._grant
