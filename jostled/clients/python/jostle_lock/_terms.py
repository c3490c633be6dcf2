"""What both worlds share: the errors, a request in words, the clock of a lock.

Nothing here reads or writes a socket.
"""

import contextlib
import math
import os
import re
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Optional

from redis.backoff import NoBackoff


# How often a keeper looks whether its connection has ended.
LOOK_S = 0.1

# How long one of several addresses of the daemon's name may take to connect.
ADDRESS_S = 1.0

# A member of a group that takes over keeps what connections held for 10 s, in which they
# are to find out. So without an answer such a lock counts as held for 0.85 of that.
CONNECTION_S = 8.5

UNRENEWED = "it ended, and no renewal was answered"


class LockError(Exception):
    """What can go wrong with a lock of jostled."""


class NotGranted(LockError):
    """Somebody else had the lock for the whole wait."""


class NoAnswer(LockError):
    """The daemon did not answer in time, or could not be reached.

    The connection is closed, which takes the request out of the line. A lock that
    was granted in that moment ends with the connection; a lease, after four
    timeouts at most, since it gets its length only when its grant is known.
    """


class LockLost(LockError):
    """Somebody else may hold the lock, or may have held it meanwhile."""


class Refused(LockError):
    """The daemon answered with an error, whose text this is."""


def refused(error):
    """The Refused of a reply; names parts of the URL where it names commands of the protocol."""
    text = str(error)  # Of some errors redis-py leaves out the first word.
    if re.match("NOAUTH|HELLO must|Authentication required", text):
        text = "NOAUTH give user and password: redis://USER:PASSWORD@HOST:PORT"
    return Refused(text)


def check_times(wait_s, ttl_s):
    """Refuses times that make no sense."""
    if wait_s is not None and not 0 <= wait_s < math.inf:
        raise ValueError("wait_s is at least 0, or None to wait for ever")
    if ttl_s is not None and not 0.01 <= ttl_s < math.inf:
        raise ValueError("ttl_s is at least 0.01, or None for no lease")


def first_s(ttl_s, timeout_s):
    """How long a lease is taken for, until its grant is known; None without one.

    A grant whose answer does not arrive leaves a lease that nobody knows of.
    Taken for four timeouts at most, it does not keep others out for long; by default
    it survives a change of the member that serves.
    """
    return None if ttl_s is None else min(ttl_s, max(4 * timeout_s, 0.01))


def times(left_s, lease_s):
    """The words for the lease and for what is left of the wait."""
    words = [] if lease_s is None else ["TTL", milliseconds(lease_s)]
    return words if left_s is None else [*words, "WAIT", milliseconds(left_s)]


@dataclass(frozen=True)
class Wish:
    """A lock as it was asked for; times in seconds. Its grant is a token."""

    name: str
    wait_s: Optional[float]
    ttl_s: Optional[float]
    shared: bool
    of: int
    session: Optional[str] = None

    def __post_init__(self):
        check_times(self.wait_s, self.ttl_s)
        if self.shared and self.of != 1:
            raise ValueError("shared locks have no places: give `shared` or `of`")

    def lock(self, left_s, lease_s):
        """The words of LOCK; `left_s` is what is left of the wait."""
        words = ["LOCK", self.name, *times(left_s, lease_s)]
        if self.shared:
            words += ["SHARED"]
        if self.of != 1:
            words += ["OF", self.of]
        if self.session is not None:
            words += ["SESSION", self.session]
        return words

    @property
    def mode(self):
        """What the daemon calls such a hold."""
        if self.shared:
            return "shared"
        return "exclusive" if self.of == 1 else "place"

    def grant(self, reply):
        return reply

    def title(self, token):
        return f"{self.name} (token {token})"

    def renew(self, token):
        """The commands that renew it, or ask whether its connection lives."""
        if self.ttl_s is None:
            return [["PING"]]
        return [["RENEW", self.name, token, "TTL", milliseconds(self.ttl_s)]]

    def unlock(self, token):
        """The commands that end it."""
        return [["UNLOCK", self.name, token]]


@dataclass(frozen=True)
class WishAll:
    """Several locks as they were asked for. Their grant is a token for each name."""

    names: tuple
    wait_s: Optional[float]
    ttl_s: Optional[float]

    def __post_init__(self):
        check_times(self.wait_s, self.ttl_s)

    @property
    def name(self):
        return ", ".join(map(str, self.names))

    def lock(self, left_s, lease_s):
        """The words of LOCKALL."""
        return ["LOCKALL", len(self.names), *self.names, *times(left_s, lease_s)]

    def grant(self, reply):
        return dict(zip(self.names, reply))

    def title(self, tokens):
        return f"{self.name} (tokens {', '.join(map(str, tokens.values()))})"

    def renew(self, tokens):
        if self.ttl_s is None:
            return [["PING"]]
        ttl = milliseconds(self.ttl_s)
        return [["RENEW", name, token, "TTL", ttl] for name, token in tokens.items()]

    def unlock(self, tokens):
        return [["UNLOCK", name, token] for name, token in tokens.items()]


@dataclass(frozen=True)
class SessionWish:
    """A session as it was asked for. Its grant is its id."""

    ttl_s: float

    def __post_init__(self):
        if self.ttl_s is None:
            raise ValueError("a session has a ttl_s")
        check_times(None, self.ttl_s)

    def open(self):
        return ["SESSION", "OPEN", "TTL", milliseconds(self.ttl_s), "AS", opener()]

    def title(self, session):
        # The whole id would let the readers of a log take the session up.
        return f"session {session[:8]}..."

    def renew(self, session):
        return [["SESSION", "RENEW", session]]

    def unlock(self, session):
        return [["SESSION", "CLOSE", session]]


def opener():
    """Who opens a session, for people. Arguments may be secret."""
    user = os.environ.get("LOGNAME") or os.environ.get("USER") or "?"
    program = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    text = f"{user}@{socket.gethostname()} pid {os.getpid()} {program}"
    text = "".join(letter for letter in text if letter.isprintable())
    return text.encode()[:255].decode(errors="ignore")


def milliseconds(seconds):
    """Rounded down, for the daemon."""
    return int(seconds * 1000)


class Term:
    """How long a lock is surely held, by this machine's monotonic clock.

    The end of a lease is counted from before the request was sent, so it comes
    here before it comes at the daemon. Once over, it stays over: an answer that
    comes too late changes nothing. `first_s` is the length of a lease that the first
    renewal makes longer. A lock without a lease ends with its connection, of which an
    answer to a PING tells as a renewal does.
    """

    def __init__(self, ttl_s, timeout_s, sent, first_s=None):
        self._guard = threading.Lock()
        self._over = False
        if ttl_s is None:
            self._ttl_s = CONNECTION_S
            #: How often to renew or to ask for a sign, and how long to wait for it.
            self.every_s, self.answer_s = min(timeout_s, CONNECTION_S) / 3, timeout_s
        else:
            self._ttl_s = milliseconds(ttl_s) / 1000
            # An attempt that is not answered leaves time for two more.
            self.every_s, self.answer_s = ttl_s / 3, min(timeout_s, ttl_s / 6)
        self._first_s = self._ttl_s if first_s is None else min(first_s, self._ttl_s)
        #: When to renew for the first time: who holds a lock for less pays no renewal.
        longer = self._first_s < self._ttl_s
        self.first_every_s = min(self._first_s / 3, 1.0) if longer else self.every_s
        self._end = sent + self._first_s

    @property
    def again_s(self):
        """When to try again after an attempt that was not answered."""
        return min(self.every_s / 4, self.answer_s)

    def is_late(self):
        """Whether the grant was waited for, so that little may be left of it."""
        return self.left_s() < self._first_s * 2 / 3

    def extend(self, sent):
        """A request sent at `sent` was granted."""
        with self._guard:
            if not self._is_over():
                self._end = sent + self._ttl_s

    def left_s(self):
        """Until the end, if nothing is answered."""
        return self._end - time.monotonic()

    def is_over(self):
        with self._guard:
            return self._is_over()

    def _is_over(self):
        self._over = self._over or self.left_s() <= 0
        return self._over


class Known:
    """What this program knows of the locks of a session.

    A request that got no answer may have been granted. Asked again, the daemon
    refuses with `ALREADYHELD token mode`. The hold is that of the unanswered
    request, unless another part of this program has it: each token is given out
    once. A name is remembered as long as it is held, asked for or in doubt, so that
    a reply that comes late cannot claim what was released meanwhile.
    """

    def __init__(self):
        self._guard = threading.Lock()
        self._names = {}

    @contextlib.contextmanager
    def asking(self, name):
        """For as long as a request for the name is on its way."""
        with self._guard:
            self._entry(name).users += 1
        try:
            yield
        finally:
            self.forget(name)

    def doubt(self, name):
        """A request got no answer; it may be granted at any later time."""
        with self._guard:
            self._entry(name).in_doubt = True

    def claim(self, name, token):
        """Whether the token is new; then it is this caller's alone, until `forget`."""
        with self._guard:
            entry = self._entry(name)
            if token <= entry.last:
                return False
            entry.last = token
            entry.users += 1
            return True

    def adopt(self, wish, refusal):
        """The token of an unanswered request that was granted; None if it is not that."""
        found = re.match(r"ALREADYHELD (\d+) (\w+)", refusal)
        if not found or found[2] != wish.mode:
            return None
        token = int(found[1])
        with self._guard:
            in_doubt = self._entry(wish.name).in_doubt
        return token if in_doubt and self.claim(wish.name, token) else None

    def forget(self, name):
        """A request has ended, or a claimed lock was released."""
        with self._guard:
            entry = self._entry(name)
            entry.users -= 1
            if not entry.users and not entry.in_doubt:
                del self._names[_key(name)]

    def _entry(self, name):
        return self._names.setdefault(_key(name), _Entry())


@dataclass
class _Entry:
    last: int = -1
    users: int = 0
    in_doubt: bool = False


def _key(name):
    return name.encode() if isinstance(name, str) else bytes(name)


class Addresses:
    """The addresses of the daemon's name: the one that was silent last is tried last."""

    def __init__(self):
        self.silent = None

    def order(self, found):
        """What getaddrinfo found, as it is to be tried."""
        return sorted(found, key=lambda one: one[4] == self.silent)

    def blame(self, address):
        """No answer came from there; None if there was no connection."""
        self.silent = address or self.silent


def keep_alive(sock):
    """Lets the system end a connection whose host is gone for 4 s."""
    for name, value in [("IDLE", 1), ("INTVL", 1), ("CNT", 3)]:
        if (option := getattr(socket, f"TCP_KEEP{name}", None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def own_connection(timeout_s, options):
    """redis-py's settings for a connection that nobody else uses.

    Nothing is sent twice: redis-py 8 repeats a command that was not answered,
    and each repetition of a LOCK would wait in line.
    """
    # Imported here: it is the one module that redis-py has moved things out of.
    from redis.retry import Retry

    settings = {
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
        "decode_responses": True,
        "encoding_errors": "replace",
    }
    settings.update(options)
    settings.update(
        socket_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        health_check_interval=0,
    )
    return settings
