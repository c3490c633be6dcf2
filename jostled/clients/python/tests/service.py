"""A jostled of the test's own, and a link to it that can be cut.

The program is $JOSTLED, or what `cargo build` leaves in the repository.
"""

import concurrent.futures
import os
import re
import signal
import socket
import subprocess
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

from jostle_lock import Locks, LockLost
from jostle_lock._terms import Term

ROOT = Path(__file__).resolve().parents[4]

#: How long an answer may take, on a machine that may stand still, and in a fault,
#: when none comes.
PATIENT_S, HASTY_S = 60, 1


class Often(Term):
    """The clock of a lock that is renewed so often that a test sees it, at any length."""

    def __init__(self, *args):
        super().__init__(*args)
        self.every_s, self.answer_s = min(self.every_s, 0.3), PATIENT_S
        self.first_every_s = self.every_s


def often(test):
    """A test whose locks are renewed often: its leases can be too long to end in it."""
    for module in ("_sync", "aio"):
        test = unittest.mock.patch(f"jostle_lock.{module}.Term", Often)(test)
    return test


def insist(take):
    """What `take` gives: again if the short lease that it takes has ended before."""
    for _ in range(100):
        try:
            return take()
        except LockLost as error:
            last = error
    raise last


def eventually(what, test):
    """Waits for something that must come true soon."""
    end = time.monotonic() + 120
    while not test():
        if time.monotonic() > end:
            raise AssertionError(f"not within 120 s: {what}")
        time.sleep(0.005)


class Daemon:
    """A running jostled; `close` kills it."""

    def __init__(self, *flags):
        program = os.environ.get("JOSTLED", str(ROOT / "target/debug/jostled"))
        self._child = subprocess.Popen(
            [program, "--data", "none", "--listen", "127.0.0.1:0", *flags],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.port = None
        for line in self._child.stderr:
            found = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
            if "ready" in line:
                break
        if self.port is None:
            raise AssertionError(f"{program} did not start")
        # It logs little; what it does is read, so that it never waits for us.
        threading.Thread(target=self._child.stderr.read, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def kill(self):
        self._child.kill()
        self._child.wait()

    def stop(self):
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self):
        self._child.send_signal(signal.SIGCONT)

    def close(self):
        self.kill()
        self._child.stderr.close()

    def ask(self, *words):
        """The reply to one command, as the bytes of RESP2."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as plain:
            plain.sendall((" ".join(map(str, words)) + "\r\nQUIT\r\n").encode())
            reply = b""
            while part := plain.recv(65536):
                reply += part
        return reply.removesuffix(b"+OK\r\n")

    def info(self, name):
        """A figure of INFO."""
        return int(re.search(rf"^{name}:(\d+)", self.ask("INFO").decode(), re.M)[1])

    def settles(self):
        """Waits until nobody holds a lock or waits for one."""
        eventually("no holds", lambda: self.info("holds") == 0)
        eventually("no waiters", lambda: self.info("waiters") == 0)


class Ask:
    """A request on a plain connection, whose answer nobody reads."""

    def __init__(self, daemon, *words):
        self._plain = socket.create_connection(("127.0.0.1", daemon.port))
        self._plain.sendall((" ".join(map(str, words)) + "\r\n").encode())

    def close(self):
        self._plain.close()


class Link:
    """A way to the daemon that stops forwarding when it is cut, as a dead network does."""

    def __init__(self, daemon):
        self._daemon = daemon
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._swallow = None
        self.opened = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self):
        self._whole.clear()

    def mend(self):
        self._whole.set()

    def lose_answer_to(self, request):
        """Once: forwards a request that has these bytes, and cuts its connection in
        place of the answer, when there is one."""
        self._swallow = request

    def close(self):
        self._whole.set()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.opened += 1
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near):
        self._whole.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._daemon.port))
        except OSError:
            near.close()
            return
        loses = threading.Event()
        back = threading.Thread(target=self._pump, args=(far, near, loses, False), daemon=True)
        back.start()
        self._pump(near, far, loses, True)
        back.join()
        near.close()
        far.close()

    def _pump(self, source, sink, loses, asks):
        """Forwards one direction until it ends; both end with it, as for a killed client."""
        try:
            while part := source.recv(65536):
                self._whole.wait()
                if loses.is_set():
                    break  # This is the answer.
                if asks and self._swallow is not None and self._swallow in part:
                    self._swallow = None
                    loses.set()
                sink.sendall(part)
        except OSError:
            pass
        self._whole.wait()
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Faulty:
    """A daemon, a link to it, and locks, which are patient except in a fault."""

    _kept = ()

    def hurry(self, answer_s=HASTY_S):
        self.locks._timeout_s = answer_s
        for one in self._kept:
            one._term.answer_s = answer_s
            if hasattr(one, "_errands"):
                one._errands._limit_s = answer_s

    def begin(self, fault, *kept):
        """Those `kept` wait for answers as the requests in the fault do."""
        self._kept = kept
        self.hurry()
        {"killed": self.daemon.kill, "stopped": self.daemon.stop, "cut off": self.link.cut}[fault]()

    def end(self, fault):
        {"stopped": self.daemon.go_on, "cut off": self.link.mend}[fault]()
        self.hurry(PATIENT_S)


class World(Faulty):
    """For `with`."""

    def __init__(self):
        self.daemon = Daemon()
        self.link = Link(self.daemon)
        self.locks = Locks(self.link.url, timeout_s=PATIENT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()
        self.daemon.close()


class InEach(unittest.TestCase):
    """Cases that are tried with each fault."""

    def in_each(self, faults, ways, case):
        """Tries all cases, each in a world of its own, at the same time: they mostly wait."""

        def one(fault, ttl_s):
            with World() as world:
                case(world, fault, ttl_s)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            cases = [(fault, ttl_s) for fault in faults for ttl_s in ways]
            done = [(which, pool.submit(one, *which)) for which in cases]
            for which, future in done:
                with self.subTest(which):
                    future.result()
