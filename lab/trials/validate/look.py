"""Looks at a server again and again, as a client of its own: look.py FILE KIND WORD...

FILE has the server's `PORT=... SECRET=...`, once it is known. Each answer is a line. A server that
is `gone` is looked for again every millisecond. KINDS has the clients, and what their words are.
"""

import json
import socket
import sys
import time
import urllib.parse


def again(look):
    """Every 2 ms."""
    while True:
        yield look()
        time.sleep(0.002)


def lines(stream):
    """What a server sends by itself."""
    file = stream.makefile("rb")
    while line := file.readline():
        yield line.decode().rstrip()


def resp(port, secret, *words):
    """A command of Redis's protocol."""
    stream = socket.create_connection(("127.0.0.1", port))

    def ask(words):
        parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
        stream.sendall("".join(parts).encode())
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += stream.recv(65536) or sys.exit()
        return answer

    ask(["AUTH", secret])
    return again(lambda: ask(words))


def memcached(port, secret):
    """The value of the only key, which the server's log of what waiters add has."""

    def enter():
        stream = socket.create_connection(("127.0.0.1", port))
        login = f"jostle {secret}"
        stream.sendall(f"set auth 0 0 {len(login)}\r\n{login}\r\n".encode())
        stream.recv(100)
        return stream

    with enter() as stream:
        stream.sendall(b"watch mutations\r\n")
        line = next(line for line in lines(stream) if " key=" in line)
    key = urllib.parse.unquote(line.split(" key=")[1].split()[0])
    stream = enter()

    def look():
        stream.sendall(f"get {key}\r\n".encode())
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += stream.recv(4096) or sys.exit()
        return f"O {''.join(answer.decode().split()[4:5])}"

    return again(look)


def nats(port, secret, *subjects):
    """Subject and headers of each message of these subjects."""
    stream = socket.create_connection(("127.0.0.1", port))
    login = json.dumps({"user": "jostle", "pass": secret, "verbose": False, "headers": True})
    each = "".join(f"SUB {subject} {at}\r\n" for at, subject in enumerate(subjects))
    stream.sendall(f"CONNECT {login}\r\n{each}".encode())
    message = None
    for line in lines(stream):
        if line.startswith("HMSG"):
            message = [line.split()[1]]
        elif line == "PING":
            stream.sendall(b"PONG\r\n")
        elif message and line:
            message.append(line)
        elif message:
            yield " ".join(message)
            message = None


def postgres(port, secret, query):
    """One value, by libpq."""
    import psycopg2

    place = {"host": "127.0.0.1", "port": port, "user": "jostle", "dbname": "postgres"}
    try:
        session = psycopg2.connect(password=secret, **place)
        session.autocommit = True
        cursor = session.cursor()

        def ask():
            cursor.execute(query)
            return cursor.fetchone()[0]

        yield from again(ask)
    except psycopg2.Error as error:
        raise OSError from error


def zookeeper(port, _):
    """The first node of the only lock, by kazoo."""
    import kazoo.client
    import kazoo.exceptions

    client = kazoo.client.KazooClient(f"127.0.0.1:{port}", command_retry={"max_tries": 0})
    try:
        client.start(timeout=1)

        def look():
            locks = [name for name in client.get_children("/") if name != "zookeeper"]
            nodes = client.get_children(f"/{locks[0]}") if locks else []
            return f"O {min(nodes, key=lambda node: node[-10:], default='')}"

        yield from again(look)
    except (kazoo.exceptions.KazooException, client.handler.timeout_exception) as error:
        raise OSError from error
    finally:
        client.stop()


KINDS = {kind.__name__: kind for kind in [resp, memcached, nats, postgres, zookeeper]}
path, kind, *words = sys.argv[1:]
while True:
    try:
        with open(path) as file:
            port, secret = [word.split("=")[1] for word in file.read().split()]
        # A server that is being started accepts nobody yet.
        socket.create_connection(("127.0.0.1", int(port))).close()
        for answer in KINDS[kind](int(port), secret, *words):
            print(answer, flush=True)
    except (OSError, SystemExit, StopIteration, ValueError):
        pass
    print("gone", flush=True)
    time.sleep(0.001)
