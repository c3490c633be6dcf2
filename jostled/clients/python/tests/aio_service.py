"""A daemon and a link to it for tests with asyncio."""

import asyncio
import unittest

from jostle_lock import LockLost
from jostle_lock.aio import Locks
from service import PATIENT_S, Daemon, Faulty, Link, eventually


async def until(what, test):
    """Waits for something that must come true soon, without keeping the loop."""
    await asyncio.to_thread(eventually, what, test)


async def insist(take):
    """What `take` gives: again if the short lease that it takes has ended before."""
    for _ in range(100):
        try:
            return await take()
        except LockLost as error:
            last = error
    raise last


class World(Faulty):
    """For `async with`."""

    async def __aenter__(self):
        self.daemon = await asyncio.to_thread(Daemon)
        self.link = Link(self.daemon)
        self.locks = Locks(self.link.url, timeout_s=PATIENT_S)
        return self

    async def __aexit__(self, *_):
        self.link.close()
        self.daemon.close()

    async def settles(self):
        await asyncio.to_thread(self.daemon.settles)

    async def one_waits(self):
        await until("it waits", lambda: self.daemon.info("waiters") == 1)


class InEach(unittest.IsolatedAsyncioTestCase):
    """Cases that are tried with each fault."""

    async def in_each(self, faults, ways, case):
        """Tries all cases, each in a world of its own, at the same time: they mostly wait."""

        async def one(fault, ttl_s):
            async with World() as world:
                await case(world, fault, ttl_s)

        cases = [(fault, ttl_s) for fault in faults for ttl_s in ways]
        tried = await asyncio.gather(*(one(*which) for which in cases), return_exceptions=True)
        for which, error in zip(cases, tried):
            with self.subTest(which):
                if error is not None:
                    raise error
