"""What each client does when the member of a group that serves is gone. Needs root, etcd, iptables.

    unshare --net --mount --pid --fork --kill-child python3 groups.py JOSTLED COMMAND...

The name `locks` has three addresses. The COMMAND prints `token N`, and a line for each outcome
that is another one or took long: its milliseconds and its text. What it prints after each fault
is printed here: the member is killed, or its address answers nothing any more. Everything lives
in namespaces, which end with this.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PORT, ETCD = 2626, "http://127.0.0.1:2379"
ADDRESSES = [f"127.0.0.{n}" for n in (11, 12, 13)]
#: The outcome of a renewal with the same token, and the end of a package's program.
AGAIN = re.compile(r"^\d+ (1|released .*)$")
#: How long is looked for an answer.
PATIENCE_S = 90


def is_again(at, line):
    """Nobody takes over within a second: such an answer was on its way at the fault."""
    return at > 1 and AGAIN.search(line) is not None


def run(*words):
    return subprocess.run(words, check=False, capture_output=True, text=True)


def await_port(address, port):
    for _ in range(600):
        try:
            return socket.create_connection((address, port), 1).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nobody listens at {address}:{port}")


def start(words, log):
    return subprocess.Popen(words, stdout=log, stderr=log)


def trial(fault, jostled, command, place, log):
    """What the client printed from the fault on, each line with its time in seconds."""
    peers = "http://127.0.0.1:2380"
    etcd = ["etcd", f"--data-dir={place}/etcd", f"--listen-client-urls={ETCD}"]
    etcd += [f"--advertise-client-urls={ETCD}", f"--listen-peer-urls={peers}"]
    running = [start(etcd, log)]
    await_port("127.0.0.1", 2379)
    own = [jostled, "--ha-name", "g", "--ha-etcd", ETCD, "--data"]
    while run(*own, f"{place}/0", "--ha-init").returncode:
        time.sleep(0.2)
    for n, address in enumerate(ADDRESSES):
        running.append(start([*own, f"{place}/{n}", "--listen", f"{address}:{PORT}"], log))
        await_port(ADDRESSES[0], PORT)
    client = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    )
    said, begun = [], threading.Event()

    def read():
        for line in client.stdout:
            said.append((time.monotonic(), line.strip()))
            if line.startswith("token"):
                begun.set()

    threading.Thread(target=read, daemon=True).start()
    if not begun.wait(PATIENCE_S):
        sys.exit(f"the client got no lock: {said}")
    time.sleep(3)
    at = time.monotonic()
    if fault == "gone":
        hook = "type filter hook input priority 0;"
        drops = " ".join(f"ip {side} {ADDRESSES[0]} drop;" for side in ("saddr", "daddr"))
        cut = run("nft", f"table ip gone {{ chain cut {{ {hook} {drops} }}; }}")
        if cut.returncode:
            sys.exit(f"nft: {cut.stderr}")
    running[1].kill()
    while time.monotonic() < at + PATIENCE_S and client.poll() is None:
        time.sleep(0.2)
        if any(is_again(when - at, line) for when, line in said):
            break
    token = next(line for _, line in said if line.startswith("token"))
    client.kill()
    run("nft", "flush", "ruleset")
    for one in running:
        one.send_signal(signal.SIGKILL)
        one.wait()
    return token, [(when - at, line) for when, line in said if when > at]


def main():
    jostled, *command = sys.argv[1:]
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory() as place, open(os.environ.get("LOG", "/dev/null"), "a") as log:
        with open(f"{place}/hosts", "w") as hosts:
            hosts.write("127.0.0.1 localhost\n")
            hosts.writelines(f"{address} locks\n" for address in ADDRESSES)
        run("mount", "--bind", f"{place}/hosts", "/etc/hosts")
        for fault in ("killed", "gone"):
            token, lines = trial(fault, jostled, command, f"{place}/{fault}", log)
            print(f"{fault}: {token}")
            for at, line in lines:
                again = "served again: " if is_again(at, line) else ""
                print(f"  {at:6.2f} s  {again}{line}", flush=True)


main()
