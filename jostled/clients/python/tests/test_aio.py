"""Locks with asyncio, against a daemon that is killed, stopped and cut off."""

import asyncio
import socket
import tempfile
import unittest
import unittest.mock

from aio_service import InEach, World, insist, until
from jostle_lock import LockLost, NoAnswer, NotGranted, Refused
from jostle_lock._aio_line import Line
from jostle_lock.aio import Locks
from service import PATIENT_S, Daemon, often


class Quiet(unittest.IsolatedAsyncioTestCase):
    """Nothing goes wrong with the daemon."""

    async def test_without_a_password_it_tells_what_to_give(self):
        with tempfile.NamedTemporaryFile("w") as file:
            print("secret", file=file, flush=True)
            daemon = Daemon("--password-file", file.name)
        self.addCleanup(daemon.close)
        with self.assertRaisesRegex(Refused, "^NOAUTH give user and password"):
            await Locks(daemon.url, timeout_s=PATIENT_S).acquire("job")

    async def test_a_lock_excludes_and_tokens_grow(self):
        async with World() as world:
            tokens = []
            for ttl_s in [None, 60]:
                async with await world.locks.acquire("job", ttl_s=ttl_s) as held:
                    tokens.append(held.token)
                    self.assertFalse(held.lost)
                    with self.assertRaises(NotGranted):
                        await world.locks.acquire("job", wait_s=0)
                await world.settles()
            self.assertEqual(tokens, sorted(set(tokens)))

    async def test_tasks_take_turns(self):
        inside, most = 0, 0

        async def work(world):
            nonlocal inside, most
            for _ in range(10):
                async with await world.locks.acquire("turn", ttl_s=60, wait_s=60):
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0)
                    inside -= 1

        async with World() as world:
            await asyncio.gather(*(work(world) for _ in range(5)))
        self.assertEqual((inside, most), (0, 1))

    @often
    async def test_a_lease_is_renewed_while_the_block_runs(self):
        async with World() as world:
            async with await world.locks.acquire("job", ttl_s=600) as held:
                await until("renewals", lambda: world.daemon.info("renewals") >= 3)
                held.check()
            self.assertEqual(world.daemon.info("expirations"), 0)

    async def test_a_cancelled_task_leaves_the_line(self):
        async with World() as world:
            async with await world.locks.acquire("job"):
                waiter = asyncio.ensure_future(world.locks.acquire("job", wait_s=None))
                await world.one_waits()
                waiter.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiter
                await until("no waiters", lambda: world.daemon.info("waiters") == 0)

    @often
    async def test_a_lock_that_is_taken_away_is_reported_to_a_coroutine(self):
        told = asyncio.Event()

        async def on_lost(held):
            told.set()

        async with World() as world:
            held = await world.locks.acquire("job", ttl_s=600, on_lost=on_lost)
            world.daemon.ask("FORCEUNLOCK", "job")
            await asyncio.wait_for(told.wait(), 120)
            with self.assertRaisesRegex(LockLost, "NOTOWNER"):
                await held.release()

    async def test_what_goes_wrong_in_the_block_comes_first(self):
        async with World() as world:
            with self.assertRaises(ZeroDivisionError):
                async with await world.locks.acquire("job"):
                    world.daemon.ask("FORCEUNLOCK", "job")
                    1 / 0

    async def test_a_wrong_name_is_refused(self):
        async with World() as world:
            with self.assertRaisesRegex(Refused, "BADNAME"):
                await world.locks.acquire("n" * 513)


class Faults(InEach):
    """The daemon is killed, stopped, or cannot be reached."""

    @often
    async def test_a_holder_is_told_that_its_lock_is_lost(self):
        async def case(world, fault, ttl_s):
            told = []
            held = await insist(
                lambda: world.locks.acquire("job", ttl_s=ttl_s, on_lost=told.append)
            )
            world.begin(fault, held)
            await until("lost", lambda: held.lost and told)
            with self.assertRaises(LockLost):
                held.check()
            with self.assertRaises(LockLost):
                await held.release()
            self.assertEqual(told, [held])
            if fault != "killed":
                world.end(fault)
                await world.settles()

        await self.in_each(["stopped", "cut off", "killed"], [None, 1.5], case)

    async def test_a_lease_is_renewed_at_once_when_its_connection_breaks(self):
        async with World() as world:
            # It would be renewed after 200 s.
            held = await world.locks.acquire("job", ttl_s=600)
            daemon, opened = world.daemon, world.link.opened
            renewals = daemon.info("renewals")
            clients = daemon.ask("HOLDER", "job").split(b"client\r\n:")
            daemon.ask("CLIENT", "KILL", int(clients[1].split(b"\r\n")[0]))
            await until("renewed", lambda: daemon.info("renewals") > renewals)
            self.assertEqual(world.link.opened, opened + 1)
            await held.release()

    async def test_nothing_stays_behind_when_no_answer_comes(self):
        async def case(world, fault, ttl_s):
            world.begin(fault)
            with self.assertRaises(NoAnswer):
                await world.locks.acquire("job", ttl_s=ttl_s, wait_s=0.1)
            world.end(fault)
            await world.settles()

        await self.in_each(["stopped", "cut off"], [None, 600], case)

    async def test_a_task_that_is_cancelled_while_it_extends_its_lease_leaves_none(self):
        extended = asyncio.Event()
        ask_all = Line.ask_all

        async def answered_late(line, commands, limit_s):
            replies = await ask_all(line, commands, limit_s)
            if commands[0][0] == "RENEW":
                extended.set()
                await asyncio.sleep(60)
            return replies

        async with World() as world:
            late = unittest.mock.patch("jostle_lock.aio.Term.is_late", lambda _: True)
            with unittest.mock.patch.object(Line, "ask_all", answered_late), late:
                task = asyncio.ensure_future(world.locks.acquire("job", ttl_s=600, wait_s=1))
                await asyncio.wait_for(extended.wait(), 120)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            await world.settles()

    async def test_each_address_of_the_name_is_tried_and_a_silent_one_last(self):
        async with World() as world:
            port, kind = world.daemon.port, (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            found = [(*kind, (f"127.0.0.{n}", port)) for n in (3, 2, 1)]
            names = unittest.mock.patch("socket.getaddrinfo", lambda *_, **__: found)
            with socket.create_server(("127.0.0.2", port)), names:
                locks = Locks(f"redis://locks:{port}", timeout_s=1)
                with self.assertRaises(NoAnswer):
                    await locks.acquire("job", wait_s=0)
                locks._timeout_s = 60
                await (await locks.acquire("job")).release()

    async def test_a_waiter_that_gives_up_leaves_the_line(self):
        async def case(world, fault, ttl_s):
            async with await Locks(world.daemon.url, timeout_s=60).acquire("job") as first:
                world.hurry()
                waiter = asyncio.ensure_future(
                    world.locks.acquire("job", ttl_s=ttl_s, wait_s=1)
                )
                await until(
                    "it waits or has given up",
                    lambda: world.daemon.info("waiters") == 1 or waiter.done(),
                )
                world.begin(fault)
                with self.assertRaises((NoAnswer, NotGranted)):
                    await waiter
                world.end(fault)
                await until("no waiters", lambda: world.daemon.info("waiters") == 0)
                first.check()
            await world.settles()

        await self.in_each(["stopped", "cut off"], [None, 600], case)

    @often
    async def test_a_lease_outlives_a_link_that_is_cut_for_a_moment(self):
        told = []
        async with World() as world:
            async with await world.locks.acquire("job", ttl_s=600, on_lost=told.append) as held:
                world.begin("cut off", held)
                await until("another connection", lambda: world.link.opened >= 2)
                before = world.daemon.info("renewals")
                world.end("cut off")
                await until("a renewal", lambda: world.daemon.info("renewals") > before)
                held.check()
        self.assertEqual(told, [])

    @often
    async def test_a_second_attempt_gets_the_lock(self):
        async with World() as world:
            locks = Locks(world.link.url, timeout_s=1, retries=60)
            world.link.cut()
            attempts = asyncio.ensure_future(locks.acquire("job", wait_s=0.5))
            await until("another attempt", lambda: world.link.opened >= 2)
            world.link.mend()
            try:
                held = await attempts
            except NotGranted:
                # The first attempt's lease was in the way: it ends with the timeout.
                held = await world.locks.acquire("job", wait_s=60)
            await until("one hold", lambda: world.daemon.info("holds") == 1)
            await until("no waiters", lambda: world.daemon.info("waiters") == 0)
            await held.release()
            await world.settles()

    async def test_a_killed_daemon_gives_no_answer(self):
        async with World() as world:
            world.begin("killed")
            with self.assertRaises(NoAnswer):
                await world.locks.acquire("job")


if __name__ == "__main__":
    unittest.main()
