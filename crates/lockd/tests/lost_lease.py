"""What clients/lock.py tells when the daemon is stopped, and when it is killed.

    python lost_lease.py PORT PID SIGNAL
"""

import os
import signal
import sys
import time
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).parents[3] / "clients"))
from lock import Lost, lock

port, pid, sent = int(sys.argv[1]), int(sys.argv[2]), getattr(signal, sys.argv[3])
client = redis.Redis("127.0.0.1", port, socket_timeout=0.3)
try:
    with lock(client, "job", ttl_ms=500) as lease:
        assert not lease.is_lost()
        os.kill(pid, sent)
        for _ in range(2000):
            if lease.is_lost():
                break
            time.sleep(0.01)
        else:
            sys.exit("the lease was never said to be lost")
    sys.exit("no exception at the end")
except Lost:
    print("lost")
