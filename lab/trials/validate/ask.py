"""Asks a server of Redis's protocol the same again and again: ask.py FILE COMMAND ARG...

FILE has the server's `PORT=... SECRET=...`, once it is known. Each answer is a line. A server that
is `gone` is looked for again every millisecond.
"""

import socket
import sys
import time

path, *words = sys.argv[1:]


def ask(stream, words):
    parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
    stream.sendall("".join(parts).encode())
    answer = b""
    while not answer.endswith(b"\r\n"):
        answer += stream.recv(65536) or sys.exit()
    return answer


while True:
    try:
        with open(path) as file:
            port, secret = [word.split("=")[1] for word in file.read().split()]
        with socket.create_connection(("127.0.0.1", int(port))) as stream:
            ask(stream, ["AUTH", secret])
            while True:
                print(ask(stream, words), flush=True)
                time.sleep(0.002)
    except (OSError, SystemExit, ValueError):
        print("gone", flush=True)
        time.sleep(0.001)
