"""A connection of redis-py that nobody else uses."""

import socket
import threading
import time

import redis

from ._terms import ADDRESS_S, NoAnswer, keep_alive, own_connection, refused


class _AnyAddress(redis.Connection):
    """Tries the addresses of a name, each for as long as one may take."""

    def _connect(self):
        kind, why = socket.SOCK_STREAM, None
        found = socket.getaddrinfo(self.host, self.port, 0, kind)
        limit_s = self.socket_connect_timeout
        limit_s = limit_s if len(found) == 1 else min(limit_s, ADDRESS_S)
        for family, _, _, _, address in self.addresses.order(found):
            sock, self.address = socket.socket(family, kind), address
            try:
                sock.settimeout(limit_s)
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                keep_alive(sock)
                sock.settimeout(self.socket_timeout)
                return sock
            except OSError as error:
                why = error
                sock.close()
                if isinstance(error, socket.timeout):
                    self.addresses.blame(address)
        self.address = None
        raise why


class _Secured(redis.SSLConnection, _AnyAddress):
    """Over TLS."""


class Line:
    """A connection of one lock's own; what is not answered in time closes it."""

    def __init__(self, url, timeout_s, options, addresses):
        settings = own_connection(timeout_s, options)
        pool = redis.ConnectionPool.from_url(url, **settings)
        ours = {redis.Connection: _AnyAddress, redis.SSLConnection: _Secured}
        pool.connection_class = ours.get(pool.connection_class, pool.connection_class)
        self._connection = pool.make_connection()
        self._connection.addresses, self._connection.address = addresses, None

    def ask(self, words, limit_s):
        """The reply, or NoAnswer or Refused; waits for at most `limit_s` (None: for ever)."""
        return self.ask_all([words], limit_s)[0]

    def ask_all(self, commands, limit_s):
        """The replies to commands that are sent at once; Refused if one of them is."""
        end = None if limit_s is None else time.monotonic() + limit_s
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
            replies = [self._reply(words[0], end, limit_s) for words in commands]
        except (redis.ResponseError, redis.AuthenticationError) as error:
            raise refused(error) from error  # It is about the connection.
        except (redis.RedisError, OSError) as error:
            self._connection.addresses.blame(self._connection.address)
            self.close()
            raise NoAnswer(str(error)) from error
        except BaseException:  # An interrupt: the answer would be taken for the next one's.
            self.close()
            raise
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                raise refused(reply) from reply
        return replies

    def _reply(self, command, end, limit_s):
        left_s = None if end is None else max(0.0, end - time.monotonic())
        if not self._connection.can_read(left_s):
            raise redis.TimeoutError(f"no answer to {command} within {limit_s:.3g} s")
        try:
            return self._connection.read_response()
        except redis.ResponseError as error:
            return error  # The other replies are to be read, too.

    def is_broken(self):
        """Whether the connection has ended, while nothing is asked."""
        try:
            if self._connection._sock is not None:
                self._connection.can_read(0)  # Keeps what comes; an end is an error.
        except (redis.RedisError, OSError):
            return True
        return False

    def close(self):
        self._connection.disconnect()


class Errands:
    """A connection for commands that do not wait, of whoever has one; opened when needed."""

    def __init__(self, new_line, limit_s):
        self._new_line, self._limit_s = new_line, limit_s
        self._guard, self._line = threading.Lock(), None

    def ask(self, words):
        """The reply, or NoAnswer or Refused. A connection that has ended is replaced once."""
        with self._guard:
            if self._line is not None:
                try:
                    return self._line.ask(words, self._limit_s)
                except NoAnswer:
                    pass
            self._line = self._new_line()
            try:
                return self._line.ask(words, self._limit_s)
            except NoAnswer:
                self._line = None
                raise

    def close(self):
        with self._guard:
            if self._line is not None:
                self._line.close()
            self._line = None
