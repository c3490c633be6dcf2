"""portalocker's lock and unlock: portalocker_lock.py STEM locks the files STEM.0, STEM.1, ..."""

import sys
import time

import portalocker
from portalocker import LockFlags

from peer import serve

files = []


def join(worker, keys):
    files.extend(open(f"{sys.argv[1]}.{key}", "a") for key in range(keys))
    return "shared timeout by=process", acquire, release


def acquire(key, shared, ms):
    flags = LockFlags.SHARED if shared else LockFlags.EXCLUSIVE
    if ms < 0:
        portalocker.lock(files[key], flags)
        return True
    until = time.monotonic() + ms / 1000
    while True:
        try:
            portalocker.lock(files[key], flags | LockFlags.NON_BLOCKING)
            return True
        except (portalocker.LockException, portalocker.AlreadyLocked):
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)


def release(key):
    portalocker.unlock(files[key])


serve(join)
