"""A lock with a lease for `pipe:`: leased_peer.py FILE SECONDS [fails].

FILE has the owner and the end of its lease, FILE.log what each program did and when, by
CLOCK_MONOTONIC in nanoseconds: `granted`, `works` (every 10 ms while it owns), `refused` (a
release that came too late) and `end` (the end of its input, at which it releases). With `fails`,
no program but the first is ever granted. With SECONDS 0 the lock is fcntl(2)'s on FILE.own, which
the kernel frees when its owner dies.
"""

import fcntl
import os
import sys
import threading
import time

path, lease_ns = sys.argv[1], int(float(sys.argv[2]) * 1e9)
worker = sys.stdin.readline().split()[2]
log = open(path + ".log", "a", buffering=1)
own = open(path + ".own", "a+")
owns = threading.Event()


def note(what, at_ns):
    log.write(f"{worker} {what} {at_ns}\n")


def work():
    while owns.wait():
        note("works", time.monotonic_ns())
        time.sleep(0.01)


def change(take):
    """Takes or frees the lock, and returns when; 0 if it is another's."""
    if not lease_ns:
        fcntl.lockf(own, fcntl.LOCK_EX if take else fcntl.LOCK_UN)
        return time.monotonic_ns()
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        owner, until = file.read().split() or ["-", "0"]
        now = time.monotonic_ns()
        is_free = owner == "-" or int(until) < now
        if (take and not is_free) or (not take and owner != worker):
            return 0
        file.truncate(0)
        file.write(f"{worker if take else '-'} {now + lease_ns}")
        return now


threading.Thread(target=work, daemon=True).start()
print("READY", flush=True)
for line in sys.stdin:
    if line[0] == "A" and worker != "0" and "fails" in sys.argv:
        print("E no such lock", flush=True)
    elif line[0] == "A":
        while not (at_ns := change(take=True)):
            time.sleep(0.002)
        note("granted", at_ns)
        owns.set()
        print("G", flush=True)
    else:
        owns.clear()
        is_ours = change(take=False)
        if not is_ours:
            note("refused", time.monotonic_ns())
        print("K" if is_ours else "E the lease was over", flush=True)
note("end", time.monotonic_ns())
if owns.is_set():
    change(take=False)
os._exit(0)
