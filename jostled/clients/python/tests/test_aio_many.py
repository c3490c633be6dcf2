"""Several locks at once, places and sessions, with asyncio, against the same faults."""

import asyncio
import unittest

from aio_service import InEach, World, insist, until
from jostle_lock import LockLost, NoAnswer, NotGranted, Refused
from jostle_lock.aio import Locks
from service import PATIENT_S, often

WAYS = [None, 60]


class Several(unittest.IsolatedAsyncioTestCase):
    """LOCKALL."""

    async def test_all_are_granted_or_none_and_tokens_grow(self):
        async with World() as world:
            last = 0
            for ttl_s in WAYS:
                async with await world.locks.acquire_all(["a", "b"], ttl_s=ttl_s) as held:
                    tokens = list(held.tokens.values())
                    self.assertEqual(tokens, sorted(set(tokens)))
                    self.assertGreater(tokens[0], last)
                    self.assertEqual(world.daemon.info("holds"), 2)
                    for wait_s in [0, 0.05]:
                        with self.assertRaises(NotGranted):
                            await world.locks.acquire_all(["c", "b"], wait_s=wait_s)
                    await (await world.locks.acquire("c", wait_s=0)).release()
                    held.check()
                last = tokens[-1]
                await world.settles()

    async def test_they_are_taken_in_any_order_without_a_deadlock(self):
        inside, counted = {"a": 0, "b": 0, "c": 0}, []

        async def work(world, names):
            for _ in range(10):
                async with await world.locks.acquire_all(names, ttl_s=60, wait_s=60):
                    for name in names:
                        inside[name] += 1
                    await asyncio.sleep(0)
                    counted.extend(inside[name] for name in names)
                    for name in names:
                        inside[name] -= 1

        async with World() as world:
            orders = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]]
            await asyncio.gather(*(work(world, names) for names in orders))
        self.assertEqual((len(counted), set(counted)), (80, {1}))

    @often
    async def test_every_lease_is_renewed_and_all_are_lost_when_one_is(self):
        async with World() as world:
            told = []
            held = await world.locks.acquire_all(["a", "b"], ttl_s=600, on_lost=told.append)
            await until("renewals", lambda: world.daemon.info("renewals") >= 6)
            held.check()
            world.daemon.ask("FORCEUNLOCK", "b")
            await until("told", lambda: told == [held])
            with self.assertRaisesRegex(LockLost, "NOTOWNER"):
                await held.release()

    async def test_what_the_daemon_does_not_take_is_refused(self):
        async with World() as world:
            for wrong in [[], ["a", "a"], [f"n{n}" for n in range(65)]]:
                with self.assertRaisesRegex(Refused, "LOCKALL takes"):
                    await world.locks.acquire_all(wrong)
            with self.assertRaises(ValueError):
                await world.locks.acquire_all("job")

    async def test_a_cancelled_task_leaves_all_lines(self):
        async with World() as world:
            async with await world.locks.acquire("b"):
                waiter = asyncio.ensure_future(world.locks.acquire_all(["a", "b"]))
                await until("it waits", lambda: world.daemon.info("waiters") == 2)
                waiter.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiter
                await until("no waiters", lambda: world.daemon.info("waiters") == 0)


class Places(unittest.IsolatedAsyncioTestCase):
    """Semaphores."""

    async def test_so_many_get_in_and_no_more(self):
        inside, most, go = 0, 0, asyncio.Event()

        async def work(world):
            nonlocal inside, most
            async with await world.locks.acquire("seat", of=3, wait_s=60):
                inside += 1
                most = max(most, inside)
                await go.wait()
                inside -= 1

        async with World() as world:
            done = asyncio.gather(*(work(world) for _ in range(8)))
            await until("three are in", lambda: inside == 3)
            await until("five wait", lambda: world.daemon.info("waiters") == 5)
            with self.assertRaises(NotGranted):
                await world.locks.acquire("seat", of=3, wait_s=0)
            with self.assertRaisesRegex(Refused, "BADLIMIT"):
                await world.locks.acquire("seat", of=4, wait_s=0)
            go.set()
            await done
            self.assertEqual((inside, most), (0, 3))
            await world.settles()


class Sessions(unittest.IsolatedAsyncioTestCase):
    """Many locks that are renewed together."""

    async def test_a_session_owns_its_locks_until_it_is_closed(self):
        async with World() as world:
            async with await world.locks.session() as session:
                a, b = await session.acquire("a"), await session.acquire("b")
                self.assertGreater(b.token, a.token)
                async with await session.acquire("c", of=2):
                    self.assertEqual(world.daemon.info("holds"), 3)
                await a.release()
                self.assertEqual(world.daemon.info("holds"), 1)
                with self.assertRaises(NotGranted):
                    await world.locks.acquire("b", wait_s=0)
                with self.assertRaisesRegex(Refused, "ALREADYHELD"):
                    await session.acquire("b", wait_s=0)
                b.check()
            self.assertTrue(b.lost)
            with self.assertRaisesRegex(LockLost, "was closed"):
                await session.acquire("d")
            self.assertEqual(world.daemon.info("sessions"), 0)
            await world.settles()

    @often
    async def test_one_renewal_is_enough_for_all(self):
        async with World() as world:
            async with await world.locks.session(ttl_s=600) as session:
                held = [await session.acquire(f"job{n}") for n in range(20)]
                before = world.daemon.info("cmd_session")
                await until(
                    "renewals", lambda: world.daemon.info("cmd_session") >= before + 4
                )
                for one in held:
                    one.check()
                self.assertEqual(world.daemon.info("holds"), 20)

    async def test_who_waits_in_the_name_of_a_session_that_ends_is_told(self):
        told = asyncio.Event()

        async def on_lost(session):
            told.set()

        async with World() as world:
            session = await world.locks.session(ttl_s=600, on_lost=on_lost)
            async with await world.locks.acquire("job"):
                waits = asyncio.ensure_future(session.acquire("job", wait_s=60))
                await world.one_waits()
                world.daemon.ask("SESSION", "CLOSE", session.id)
                with self.assertRaisesRegex(LockLost, "NOSESSION"):
                    await waits
            await asyncio.wait_for(told.wait(), 120)
            with self.assertRaises(LockLost):
                await session.close()

    async def test_a_lock_that_was_taken_away_is_reported_by_its_release(self):
        async with World() as world:
            async with await world.locks.session() as session:
                held = await session.acquire("job")
                world.daemon.ask("FORCEUNLOCK", "job")
                with self.assertRaisesRegex(LockLost, "NOT"):
                    await held.release()
                session.check()

    async def test_a_session_that_is_over_is_not_taken_up(self):
        async with World() as world:
            with self.assertRaisesRegex(LockLost, "NOSESSION"):
                await world.locks.session(id="0" * 32)


class Faults(InEach):
    """The daemon is killed, stopped, or cannot be reached."""

    @often
    async def test_a_holder_of_several_is_told_that_they_are_lost(self):
        async def case(world, fault, ttl_s):
            told, wish = [], {"ttl_s": ttl_s}
            held = await insist(
                lambda: world.locks.acquire_all(["a", "b"], on_lost=told.append, **wish)
            )
            world.begin(fault, held)
            await until("lost", lambda: held.lost and told)
            with self.assertRaises(LockLost):
                await held.release()
            self.assertEqual(told, [held])
            if fault != "killed":
                world.end(fault)
                await world.settles()

        await self.in_each(["stopped", "cut off", "killed"], [None, 1.5], case)

    async def test_nothing_stays_behind_when_several_are_not_answered(self):
        async def case(world, fault, ttl_s):
            world.begin(fault)
            with self.assertRaises(NoAnswer):
                await world.locks.acquire_all(["a", "b"], ttl_s=ttl_s, wait_s=0.1)
            world.end(fault)
            await world.settles()

        await self.in_each(["stopped", "cut off"], [None, 600], case)

    async def test_a_session_is_lost_with_all_its_locks(self):
        async def case(world, fault, ttl_s):
            async def take():
                told = []
                session = await world.locks.session(ttl_s=ttl_s, on_lost=told.append)
                return told, session, [await session.acquire(name) for name in ("a", "b")]

            told, session, held = await insist(take)
            world.begin(fault, session)
            await until("lost", lambda: session.lost and told)
            for lost in [session.close, *(one.release for one in held)]:
                with self.assertRaises(LockLost):
                    await lost()
            self.assertEqual(told, [session])
            if fault != "killed":
                world.end(fault)
                await world.settles()

        await self.in_each(["stopped", "cut off", "killed"], [1.5], case)

    async def test_who_gives_up_waiting_in_a_session_leaves_the_line(self):
        async def case(world, fault, ttl_s):
            session = await world.locks.session(ttl_s=ttl_s)
            async with await Locks(world.daemon.url, timeout_s=60).acquire("job"):
                world.hurry()
                waits = asyncio.ensure_future(session.acquire("job", wait_s=1))
                await until(
                    "it waits or has given up",
                    lambda: world.daemon.info("waiters") == 1 or waits.done(),
                )
                world.begin(fault)
                with self.assertRaises((NoAnswer, NotGranted)):
                    await waits
                world.end(fault)
                await until("no waiters", lambda: world.daemon.info("waiters") == 0)
            await session.close()
            await world.settles()

        await self.in_each(["stopped", "cut off"], [600], case)

    async def test_a_request_whose_answer_was_lost_finds_its_lock(self):
        async with World() as world:
            async with await world.locks.session(ttl_s=60) as session:
                world.link.lose_answer_to(b"LOCK")
                with self.assertRaises(NoAnswer):
                    await session.acquire("job")
                async with await session.acquire("job") as held:
                    self.assertEqual(held.token, world.daemon.info("grants"))
                    self.assertEqual(world.daemon.info("holds"), 1)
                    with self.assertRaisesRegex(Refused, f"ALREADYHELD {held.token}"):
                        await session.acquire("job")
                await world.settles()
                async with await world.locks.session(ttl_s=60) as other:
                    world.link.lose_answer_to(b"LOCK")
                    # Each retry comes after a part of the timeout.
                    world.locks._retries = 20
                    world.hurry()
                    async with await other.acquire("job") as held:
                        self.assertEqual(held.token, world.daemon.info("grants"))
            await world.settles()

    async def test_a_task_that_was_cancelled_while_its_lock_was_granted_leaves_it_to_be_found(self):
        async with World() as world, await world.locks.session(ttl_s=60) as session:
            other = await Locks(world.daemon.url, timeout_s=PATIENT_S).acquire("job")
            task = asyncio.ensure_future(session.acquire("job", wait_s=None))
            await world.one_waits()
            world.link.cut()
            await other.release()
            await until("granted", lambda: world.daemon.info("grants") == 2)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            world.link.mend()
            held = await session.acquire("job")
            self.assertEqual(held.token, 2)
            await held.release()

    @often
    async def test_a_session_that_is_taken_up_again_keeps_its_locks(self):
        async with World() as world:
            first = await world.locks.session(ttl_s=600)
            token = (await first.acquire("job")).token
            direct = Locks(world.daemon.url, timeout_s=PATIENT_S)
            async with await direct.session(ttl_s=600, id=first.id) as session:
                world.begin("cut off", first)
                before = world.daemon.info("cmd_session")
                await until(
                    "renewals", lambda: world.daemon.info("cmd_session") >= before + 3
                )
                with self.assertRaises(NotGranted):
                    await direct.acquire("job", wait_s=0)
                await session.held("job", token).release()
                self.assertGreater((await session.acquire("job")).token, token)
            world.end("cut off")
            with self.assertRaises(LockLost):
                await first.close()
            await world.settles()


if __name__ == "__main__":
    unittest.main()
