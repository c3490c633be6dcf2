"""fcntl(2) locks by Python's standard library: file_lock.py PATH."""

import fcntl
import sys
import time

from peer import serve

file = open(sys.argv[1], "a+b")


def join(worker, keys):
    return "shared timeout by=process", acquire, release


def acquire(key, shared, ms):
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if ms < 0:
        fcntl.lockf(file, kind, 1, key)
        return True
    until = time.monotonic() + ms / 1000
    while True:
        try:
            fcntl.lockf(file, kind | fcntl.LOCK_NB, 1, key)
            return True
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)


def release(key):
    fcntl.lockf(file, fcntl.LOCK_UN, 1, key)


serve(join)
