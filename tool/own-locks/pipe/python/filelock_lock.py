"""filelock's FileLock: filelock_lock.py STEM locks the files STEM.0, STEM.1, ..."""

import sys

from filelock import FileLock, Timeout

from peer import serve

locks = []


def join(worker, keys):
    locks.extend(FileLock(f"{sys.argv[1]}.{key}") for key in range(keys))
    return "timeout by=process", acquire, release


def acquire(key, shared, ms):
    try:
        locks[key].acquire(timeout=-1 if ms < 0 else ms / 1000, poll_interval=0.001)
        return True
    except Timeout:
        return False


def release(key):
    locks[key].release()


serve(join)
