"""Lock files: file_locks.py KIND STEM locks STEM.0, STEM.1, ...

unlinks: flock(2), and the releaser unlinks the file: a waiter that has it open then owns a file
    without a name, beside the owner of a new one.
looks: the same; a new owner looks whether its file still has the name.
breaks: the file itself is the lock; if its owner is dead, each that finds it unlinks it.
breaks-once: the same; one at a time unlinks, and only the file that was found.
"""

import fcntl
import os
import sys
import time

from peer import serve

kind, stem = sys.argv[1:]
own = f"{stem}.{os.getpid()}"
held = {}


def flocked(path, file):
    """The file, and whether it is locked."""
    file = file or open(path, "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return file, False
    if kind == "unlinks" or os.path.exists(path) and os.path.samefile(path, file.fileno()):
        return file, True
    file.close()
    return None, False


def linked(path, _):
    try:
        os.link(own, path)
        return open(own), True
    except FileExistsError:
        pass
    try:
        found = open(path).read()
        if is_dead(int(found.split()[0])):
            unlink_stale(path, found)
    except FileNotFoundError:
        pass
    return None, False


def is_dead(process):
    try:
        return open(f"/proc/{process}/stat").read().rpartition(") ")[2][0] in "XZ"
    except FileNotFoundError:
        return True


def unlink_stale(path, found):
    with open(f"{stem}.guard", "a") as guard:
        if kind == "breaks":
            # Its last writes may still be under way.
            time.sleep(0.02)
        else:
            fcntl.flock(guard, fcntl.LOCK_EX)
        if kind == "breaks" or open(path).read() == found:
            os.unlink(path)


def acquire(key, shared, ms):
    until, file, is_locked = time.monotonic() + ms / 1000, None, False
    attempt = linked if kind.startswith("breaks") else flocked
    while True:
        file, is_locked = attempt(f"{stem}.{key}", file)
        if is_locked:
            held[key] = file
            return True
        if 0 <= ms and time.monotonic() >= until:
            return False
        time.sleep(0.001)


def release(key):
    os.unlink(f"{stem}.{key}")
    held.pop(key).close()


with open(own, "w") as file:
    file.write(f"{os.getpid()} {os.urandom(4).hex()}")
serve(lambda worker, keys: ("timeout by=process", acquire, release))
