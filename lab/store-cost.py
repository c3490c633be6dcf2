#!/usr/bin/env python3
"""What `jostled --store file` costs, beside no data directory and `--data`, and beside
`redis-server --appendfsync always` and etcd's own locks. It measures speed: run it in a quiet hour.

    cargo build --release -p jostle --features services -p jostle-lockd
    lab/store-cost.py TMPFS-DIR DISK-DIR [REPEATS] > store-cost.jsonl

50 connections take and release leases of 60 s, each of a name of its own, with 1, 16 and 100
commands in flight. In every other repeat the order is reversed. Each line is one run: pairs a
second; p50 and p99, in microseconds, from the sending of what is in flight to its last reply;
for jostled the commits of its store, and the mean number of changes and of milliseconds of one.
This client is one thread: the row `none` shows the most that it can do. etcd is asked by jostle,
one request at a time, since its locks need HTTP/2.
"""

import json, os, selectors, shutil, socket, subprocess, sys, time

CLIENTS, SECONDS, PORT = 50, 3.0, 7391
RELEASE = os.environ.get("CARGO_TARGET_DIR") or os.path.join(os.path.dirname(__file__), "../target")
ADDRESS = ("127.0.0.1", PORT)
AT = f"127.0.0.1:{PORT}"


def program(name):
    return os.path.join(RELEASE, "release", name)


def command(*words):
    parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def server(kind, data):
    jostled = [program("jostled"), "--listen", AT, "--data"]
    return {
        "none": jostled + ["none"],
        "data": jostled + [data],
        "file": jostled + [data, "--store", "file"],
        "redis": ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "",
                  "--appendonly", "yes", "--appendfsync", "always", "--dir", data],
        "etcd": ["etcd", "--data-dir", data, "--listen-client-urls", f"http://{AT}",
                 "--advertise-client-urls", f"http://{AT}", "--log-level", "error",
                 "--listen-peer-urls", f"http://127.0.0.1:{PORT + 1}"],
    }[kind]


def data_of(place):
    data = os.path.join(place, "data")
    os.makedirs(data)
    return data


def pair(kind, name):
    if kind == "redis":
        return [command(b"SET", name, b"1", b"NX", b"PX", b"60000"), command(b"DEL", name)]
    return [command(b"LOCK", name, b"TTL", b"60000"), command(b"UNLOCK", name)]


def load(kind, depth):
    """Pairs a second, and the sorted times of all batches; each reply is one line."""
    chosen, times, done = selectors.DefaultSelector(), [], 0
    for number in range(CLIENTS):
        peer = socket.create_connection(ADDRESS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        both = pair(kind, b"job:%d" % number)
        batches = both if depth == 1 else [b"".join(both) * (depth // 2)]
        chosen.register(peer, selectors.EVENT_READ, [batches, 0, 0, 0.0])
    begin = time.monotonic()
    for key in list(chosen.get_map().values()):
        key.data[3] = time.monotonic()
        key.fileobj.sendall(key.data[0][0])
    while (now := time.monotonic()) < begin + SECONDS:
        for key, _ in chosen.select(1):
            state = key.data
            state[2] += key.fileobj.recv(1 << 16).count(b"\n")
            if state[2] == depth:
                now = time.monotonic()
                times.append(now - state[3])
                done += depth
                state[1] = (state[1] + 1) % len(state[0])
                state[2], state[3] = 0, now
                key.fileobj.sendall(state[0][state[1]])
    for key in list(chosen.get_map().values()):
        key.fileobj.close()
    return done / 2 / (now - begin), sorted(times)


def info():
    with socket.create_connection(ADDRESS) as peer:
        peer.sendall(command(b"INFO", b"store") + command(b"QUIT"))
        text = b"".join(iter(lambda: peer.recv(1 << 16), b"")).decode()
    lines = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {line[0]: line[1] for line in lines}


def of_etcd(row, place):
    out = os.path.join(place, "run.jsonl")
    words = f"stream -w {CLIENTS} --names own -n 200 --runs 1 -q -o {out} etcd://{AT}"
    # Its exit code is also about the verdict.
    subprocess.run([program("jostle"), *words.split()], stdout=subprocess.DEVNULL)
    rates = (json.loads(line).get("throughput_per_s") for line in open(out))
    row["pairs_per_s"] = next(rate for rate in rates if rate)


def measure(kind, medium, place, depth):
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    row = {"service": kind, "on": medium, "in_flight": depth}
    with open(os.path.join(place, "out"), "w") as out:
        child = subprocess.Popen(server(kind, data_of(place)), stdout=out, stderr=out)
        try:
            for _ in range(600):
                time.sleep(0.1)
                with socket.socket() as peer:
                    if peer.connect_ex(ADDRESS) == 0:
                        break
            if kind == "etcd":
                time.sleep(2)  # Its first election.
                of_etcd(row, place)
            else:
                row["pairs_per_s"], times = load(kind, depth)
                quantile = lambda part: times[int(len(times) * part)] * 1e6
                row |= {"p50_us": quantile(0.5), "p99_us": quantile(0.99)}
            if kind == "file":
                found = info()
                commits = int(found["store_commits"])
                row["commits"] = commits
                row["changes_per_commit"] = int(found["store_entries"]) / commits
                row["commit_ms"] = float(found["store_commit_seconds"]) * 1e3 / commits
        finally:
            child.terminate()
            child.wait()
            shutil.rmtree(place, ignore_errors=True)
    print(json.dumps(row), flush=True)


def main():
    media = {"tmpfs": sys.argv[1], "disk": sys.argv[2]}
    cells = [("none", "disk", depth) for depth in (1, 16, 100)]
    for kind in ("data", "file", "redis", "etcd"):
        depths = (1,) if kind == "etcd" else (1, 16, 100)
        cells += [(kind, medium, depth) for medium in media for depth in depths]
    for repeat in range(int(sys.argv[3]) if len(sys.argv) > 3 else 5):
        for kind, medium, depth in cells[:: -1 if repeat % 2 else 1]:
            place = os.path.join(media[medium], "jostle-store-cost")
            measure(kind, medium, place, depth)


main()
