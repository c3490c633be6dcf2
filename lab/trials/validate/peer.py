"""A lock for `pipe:`, which logs what it does by CLOCK_MONOTONIC: peer.py FILE [LEASE_S].

Without a lease the lock is fcntl(2)'s on FILE, which the kernel frees when its owner dies. With
one, FILE has the owner and the end of its lease. FILE.log has `WORKER granted TIME` and, where a
release was too late, `WORKER refused TIME`.
"""

import fcntl
import sys
import time

path, lease_ns = sys.argv[1], int(float((sys.argv[2:] or ["0"])[0]) * 1e9)
worker = sys.stdin.readline().split()[2]
log = open(path + ".log", "a", buffering=1)
held = open(path + ".own", "a+")


def change(take):
    """Takes or frees the lock with a lease; False if it is another's."""
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        owner, until = file.read().split() or ["-", "0"]
        now = time.monotonic_ns()
        is_free = owner == "-" or int(until) < now
        if (take and not is_free) or (not take and owner != worker):
            return False
        file.truncate(0)
        file.write(f"{worker if take else '-'} {now + lease_ns}")
        return True


print("READY", flush=True)
for line in sys.stdin:
    if line[0] == "A":
        if lease_ns:
            while not change(take=True):
                time.sleep(0.002)
        else:
            fcntl.lockf(held, fcntl.LOCK_EX)
        log.write(f"{worker} granted {time.monotonic_ns()}\n")
        print("G", flush=True)
    elif not lease_ns:
        fcntl.lockf(held, fcntl.LOCK_UN)
        print("K", flush=True)
    elif change(take=False):
        print("K", flush=True)
    else:
        log.write(f"{worker} refused {time.monotonic_ns()}\n")
        print("E the lease was over", flush=True)
