"""Sessions of asyncio: many locks that are renewed together."""

from ._aio_kept import Kept
from ._aio_line import Errands
from ._terms import Known, LockLost, NoAnswer, Refused, Wish


class Session(Kept):
    """A session that is open. Use it with `async with`, or call `close`, which ends its locks.

    `lost`, `check` and `on_lost` are for all of its locks alike.
    """

    def __init__(self, locks, wish, id, term, line, on_lost):
        self._locks, self._known = locks, Known()
        self._errands = Errands(locks._line, locks._timeout_s)
        super().__init__(wish, id, term, line, locks._line, on_lost)

    @property
    def id(self):
        """What `Locks.session` takes up again; only the same user can. Keep it secret."""
        return self._grant

    async def acquire(self, name, *, wait_s=10.0, shared=False, of=1):
        """Waits for a lock of this session, as `Locks.acquire` does; a `SessionHeld`.

        Raises NotGranted, NoAnswer, Refused, or LockLost if the session is over.
        After NoAnswer the session may have the lock. Acquire it again: that gives the
        lock with its token if the session has it, and waits for it otherwise.
        """
        wish = Wish(name, wait_s, None, shared, of, self.id)
        self._check_open()
        with self._known.asking(name):
            token = await self._token(wish)
        held = SessionHeld(self, name, token)
        held.check()
        return held

    async def _token(self, wish):
        try:
            token = await self._locks._lock_in_session(wish, self._known.doubt)
        except Refused as error:
            token = self._known.adopt(wish, str(error))
            if token is not None:
                return token
            if not str(error).startswith("NOSESSION"):
                raise
            reason = f"the daemon says: {error}"
            self._lose(reason)
            raise LockLost(f"{self._wish.title(self.id)}: {reason}") from error
        if not self._known.claim(wish.name, token):
            # Another request was in doubt, and has taken this grant for its own.
            raise Refused(f"ALREADYHELD {token} {wish.mode} by another part of this program")
        return token

    def held(self, name, token):
        """A lock that this session was granted before it was taken up by its `id`."""
        return SessionHeld(self, name, token, self._known.claim(name, token))

    async def close(self):
        """Ends the session, and all locks that it still has.

        Raises LockLost unless the daemon confirms that the session lasted until now.
        """
        try:
            await self._finish()
        finally:
            await self._errands.close()

    async def __aexit__(self, kind, error, trace):
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            await self._errands.close()

    def _check_open(self):
        self.check()
        if self._over.is_set():
            raise LockLost(f"{self._wish.title(self.id)}: it was closed")


class SessionHeld:
    """A lock of a session. Use it with `async with`, or call `release`."""

    def __init__(self, session, name, token, claimed=True):
        self.name = name
        #: The fencing token: larger than that of every earlier grant.
        self.token = token
        self._session, self._released, self._reason = session, False, None
        self._claimed = claimed

    @property
    def lost(self):
        """Whether somebody else may hold the lock by now: it is lost with its session."""
        try:
            self.check()
        except LockLost:
            return True
        return False

    def check(self):
        """Raises LockLost if the lock is lost: call it before what must not happen twice."""
        if self._reason is not None:
            raise LockLost(self._reason)
        if not self._released:
            self._session._check_open()

    async def release(self):
        """Gives the lock back. Raises LockLost if it was not held until now.

        After NoAnswer the session may still have it: release it again.
        """
        if self._released:
            return
        self.check()
        try:
            await self._session._errands.ask(["UNLOCK", self.name, self.token])
        except Refused as error:
            self._reason = f"{self.name} (token {self.token}): the daemon says: {error}"
            self._forget()
            raise LockLost(self._reason) from error
        self._released = True
        self._forget()

    def _forget(self):
        claimed, self._claimed = self._claimed, False
        if claimed:
            self._session._known.forget(self.name)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, trace):
        try:
            await self.release()
        except (LockLost, NoAnswer):
            if kind is None:
                raise  # Else what went wrong in the block says more.
