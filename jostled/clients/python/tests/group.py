"""Holds a lease and a session's lock for 30 s; for xtask/clients/groups.py, as its programs are."""

import sys
import time

from jostle_lock import LockError, Locks

locks = Locks(f"redis://locks:{sys.argv[1]}", retries=4)
with locks.session(ttl_s=20) as session, session.acquire("part") as part:
    with locks.acquire("job", ttl_s=20) as held:
        print("token", held.token, part.token, flush=True)
        last, end = None, time.monotonic() + 30
        while time.monotonic() < end:
            sent, said = time.monotonic(), "granted"
            try:
                locks.acquire("other", wait_s=1).release()
            except LockError as error:
                said = f"{type(error).__name__}: {error}"
            ms = round((time.monotonic() - sent) * 1000)
            if said != last or ms > 300:
                print(ms, said, "LOST" if held.lost or part.lost else "held", flush=True)
            last = said
            time.sleep(0.1)
print("0 released", held.token, part.token, flush=True)
