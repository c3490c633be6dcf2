"""A client of Redis in a few lines, for the locks and neighbours of situations."""

import socket


class Redis:
    def __init__(self, host="127.0.0.1", port=6379):
        self.socket = socket.create_connection((host, port))
        self.answers = self.socket.makefile("rb")

    def __call__(self, *words):
        parts = [str(word).encode() for word in words]
        request = b"*%d\r\n" % len(parts)
        request += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(request)
        return self._answer()

    def _answer(self):
        line = self.answers.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.answers.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._answer() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest
