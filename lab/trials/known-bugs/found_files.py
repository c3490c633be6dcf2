"""File locks with a reported bug, of libraries in $PLACE/py: found_files.py KIND STEM locks STEM.0, ...

simpleflock: the releaser unlinks the file after it has unlocked it.
ilock: the releaser unlinks the file, which a waiter may have open.
lifetime: filelock's FileLock, whose lifetime of 20 ms is shorter than many holds.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.environ["PLACE"], "py"))
from peer import serve

kind, stem = sys.argv[1:]
held = {}

if kind == "simpleflock":
    from simpleflock import SimpleFlock

    refused = OSError
elif kind == "ilock":
    from ilock import ILock, ILockException as refused
else:
    from filelock import FileLock, Timeout as refused


def made(path, seconds):
    """The lock of a path; it is waited for so many seconds, or for ever (None)."""
    if kind == "simpleflock":
        return SimpleFlock(path, seconds)
    if kind == "ilock":
        return ILock(path, seconds, 0.001, lock_directory=os.path.dirname(stem))
    return FileLock(path, -1 if seconds is None else seconds, lifetime=0.02)


def acquire(key, shared, ms):
    lock = made(f"{stem}.{key}", None if ms < 0 else ms / 1000)
    try:
        lock.__enter__()
    except refused:
        if kind == "simpleflock":
            # It leaves its file open.
            os.close(lock._fd)
        return False
    held[key] = lock
    return True


def release(key):
    try:
        held.pop(key).__exit__(None, None, None)
    except FileNotFoundError:
        # Somebody else has unlinked ilock's file.
        pass


serve(lambda worker, keys: ("timeout by=process", acquire, release))
