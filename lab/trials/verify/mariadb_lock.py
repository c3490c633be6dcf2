"""GET_LOCK in sessions that MariaDB ends after a second without a statement: mariadb_lock.py
HOST:PORT KIND. User and password are in $MYSQL_USER and $MYSQL_PWD.

trusts: an owner that does nothing keeps its lock for two seconds at least.
pings: the second is the lease, and is renewed.
"""

import os
import subprocess
import sys

from peer import serve

place, kind = sys.argv[1:]
host, port = place.rsplit(":", 1)
COMMAND = ["mariadb", "--protocol=tcp", "-BNn", "--skip-reconnect", "-h", host, "-P", port]
COMMAND += ["-u", os.environ["MYSQL_USER"]]
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
session = None


def ask(sql):
    """The one value of the answer. A session that has ended is an error, and the next is new."""
    global session
    if not session:
        session = subprocess.Popen(COMMAND, text=True, **PIPES)
        ask("SET SESSION wait_timeout = 1; SELECT 1")
    try:
        session.stdin.write(sql + ";\n")
        session.stdin.flush()
        said = session.stdout.readline().strip()
    except BrokenPipeError:
        said = ""
    if not said or said.startswith("ERROR"):
        session.kill()
        session.wait()
        session = None
        raise ConnectionError(said or "the session has ended")
    return said


def join(worker, keys):
    words = "renew lease=1000" if kind == "pings" else "lease=2000"
    return f"timeout fifo by=connection {words}", acquire, release, renew


def acquire(key, shared, ms):
    sql = f"SELECT GET_LOCK('jostle:{key}', {ms / 1000 if ms >= 0 else 1_000_000})"
    try:
        return ask(sql) == "1"
    except ConnectionError:
        # A session that was idle before had no lock.
        return ask(sql) == "1"


def release(key):
    return ask(f"SELECT RELEASE_LOCK('jostle:{key}')") == "1"


def renew(key, ms):
    try:
        return ask(f"SELECT IS_USED_LOCK('jostle:{key}') = CONNECTION_ID()") == "1"
    except ConnectionError:
        return False


serve(join)
