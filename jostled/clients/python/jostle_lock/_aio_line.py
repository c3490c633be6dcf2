"""A connection of redis-py's asyncio that nobody else uses."""

import asyncio
import socket

import redis.asyncio

from ._terms import ADDRESS_S, NoAnswer, keep_alive, own_connection, refused


class _AnyAddress(redis.asyncio.Connection):
    """Tries the addresses of a name, each for as long as one may take."""

    async def _connect(self):
        why, loop = None, asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        if len(found) > 1:
            self.socket_connect_timeout = min(self.socket_connect_timeout, ADDRESS_S)
        for one in self.addresses.order(found):
            self.address = one[4]
            try:
                await super()._connect()
                return keep_alive(self._writer.get_extra_info("socket"))
            except (OSError, asyncio.TimeoutError) as error:
                why = error
                if not isinstance(error, ConnectionError):
                    self.addresses.blame(self.address)
        self.address = None
        raise why

    def _connection_arguments(self):
        return {**super()._connection_arguments(), "host": self.address[0]}


class _Secured(redis.asyncio.SSLConnection, _AnyAddress):
    """Over TLS."""

    def _connection_arguments(self):
        return {**super()._connection_arguments(), "server_hostname": self.host}


class Line:
    """A connection of one lock's own; what is not answered in time closes it."""

    def __init__(self, url, timeout_s, options, addresses):
        settings = own_connection(timeout_s, options)
        settings["socket_timeout"] = None  # It would end a wait; `ask` has the limits.
        pool = redis.asyncio.ConnectionPool.from_url(url, **settings)
        ours = {redis.asyncio.Connection: _AnyAddress, redis.asyncio.SSLConnection: _Secured}
        pool.connection_class = ours.get(pool.connection_class, pool.connection_class)
        self._connection, self._timeout_s = pool.make_connection(), timeout_s
        self._connection.addresses, self._connection.address = addresses, None

    async def ask(self, words, limit_s):
        """The reply, or NoAnswer or Refused; waits for at most `limit_s` (None: for ever)."""
        return (await self.ask_all([words], limit_s))[0]

    async def ask_all(self, commands, limit_s):
        """The replies to commands that are sent at once; Refused if one of them is."""
        try:
            replies = await asyncio.wait_for(self._exchange(commands), limit_s)
        except (redis.ResponseError, redis.AuthenticationError) as error:
            raise refused(error) from error  # It is about the connection.
        except (redis.RedisError, OSError, asyncio.TimeoutError) as error:
            self._connection.addresses.blame(self._connection.address)
            await self.close()
            late = f"no answer to {commands[0][0]} in time"
            raise NoAnswer(str(error) or late) from error
        except BaseException:  # Cancelled: the answer would be taken for the next one's.
            await self.close()
            raise
        for reply in replies:
            if isinstance(reply, redis.ResponseError):
                raise refused(reply) from reply
        return replies

    async def _exchange(self, commands):
        await asyncio.wait_for(self._connection.connect(), self._timeout_s)
        packed = self._connection.pack_commands(commands)
        await self._connection.send_packed_command(packed)
        return [await self._reply() for _ in commands]

    async def _reply(self):
        try:
            return await self._connection.read_response()
        except redis.ResponseError as error:
            return error  # The other replies are to be read, too.

    def is_broken(self):
        """Whether the connection has ended, while nothing is asked."""
        reader = self._connection._reader
        return reader is not None and (reader.at_eof() or reader.exception() is not None)

    async def close(self):
        await self._connection.disconnect(nowait=True)


class Errands:
    """A connection for commands that do not wait, of whoever has one; opened when needed."""

    def __init__(self, new_line, limit_s):
        self._new_line, self._limit_s = new_line, limit_s
        self._guard, self._line = asyncio.Lock(), None

    async def ask(self, words):
        """The reply, or NoAnswer or Refused. A connection that has ended is replaced once."""
        async with self._guard:
            if self._line is not None:
                try:
                    return await self._line.ask(words, self._limit_s)
                except NoAnswer:
                    pass
            self._line = self._new_line()
            return await self._line.ask(words, self._limit_s)

    async def close(self):
        async with self._guard:
            if self._line is not None:
                await self._line.close()
            self._line = None
