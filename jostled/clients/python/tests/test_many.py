"""Several locks at once, places and sessions, with threads, against the same faults."""

import concurrent.futures
import threading
import unittest

from jostle_lock import Locks, LockLost, NoAnswer, NotGranted, Refused
from service import PATIENT_S, Ask, Daemon, InEach, World, eventually, insist, often

WAYS = [None, 60]


class Quiet(unittest.TestCase):
    """A daemon with which nothing goes wrong."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.locks = Locks(self.daemon.url, timeout_s=PATIENT_S)

    def is_free(self, name, **wish):
        try:
            self.locks.acquire(name, wait_s=0, **wish).release()
        except NotGranted:
            return False
        return True


class Several(Quiet):
    """LOCKALL."""

    def test_all_are_granted_or_none_and_tokens_grow(self):
        last = 0
        for ttl_s in WAYS:
            with self.locks.acquire_all(["a", "b", "c"], ttl_s=ttl_s) as held:
                self.assertEqual(list(held.tokens), ["a", "b", "c"])
                self.assertEqual(held.names, ("a", "b", "c"))
                tokens = list(held.tokens.values())
                self.assertEqual(tokens, sorted(set(tokens)))
                self.assertGreater(tokens[0], last)
                self.assertEqual(self.daemon.info("holds"), 3)
                for wait_s in [0, 0.05]:
                    with self.assertRaises(NotGranted):
                        self.locks.acquire_all(["d", "c"], wait_s=wait_s)
                self.assertTrue(self.is_free("d"))
                self.assertFalse(self.is_free("b"))
                self.assertFalse(held.lost)
            held.release()  # Nothing happens.
            last = tokens[-1]
            self.daemon.settles()

    def test_they_are_taken_in_any_order_without_a_deadlock(self):
        inside, counted = {"a": 0, "b": 0, "c": 0}, []

        def work(names):
            for _ in range(20):
                with self.locks.acquire_all(names, ttl_s=60, wait_s=60) as held:
                    for name in names:
                        inside[name] += 1
                    counted.append([inside[name] for name in held.names])
                    for name in names:
                        inside[name] -= 1

        orders = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a", "b"]]
        with concurrent.futures.ThreadPoolExecutor(len(orders)) as pool:
            list(pool.map(work, orders))
        self.assertEqual(len(counted), 80)
        self.assertEqual({count for counts in counted for count in counts}, {1})
        self.daemon.settles()

    @often
    def test_every_lease_is_renewed(self):
        with self.locks.acquire_all(["a", "b"], ttl_s=600) as held:
            eventually("renewals", lambda: self.daemon.info("renewals") >= 6)
            held.check()
        self.assertEqual(self.daemon.info("expirations"), 0)

    @often
    def test_all_are_lost_when_one_is_taken_away(self):
        told = []
        held = self.locks.acquire_all(["a", "b"], ttl_s=600, on_lost=told.append)
        self.daemon.ask("FORCEUNLOCK", "b")
        eventually("told", lambda: told == [held])
        with self.assertRaisesRegex(LockLost, r"a, b \(tokens \d+, \d+\).*NOTOWNER"):
            held.check()
        with self.assertRaises(LockLost):
            held.release()

    def test_a_release_reports_what_was_taken_away_and_gives_back_the_rest(self):
        for ttl_s in WAYS:
            held = self.locks.acquire_all(["a", "b", "c"], ttl_s=ttl_s)
            self.daemon.ask("FORCEUNLOCK", "a")
            with self.assertRaisesRegex(LockLost, "NOT"):
                held.release()
            self.daemon.settles()

    def test_what_the_daemon_does_not_take_is_refused(self):
        for wrong in [[], ["a", "a"], [f"n{n}" for n in range(65)]]:
            with self.assertRaisesRegex(Refused, "LOCKALL takes"):
                self.locks.acquire_all(wrong)
        with self.assertRaises(ValueError):
            self.locks.acquire_all("job")
        with self.assertRaises(ValueError):
            self.locks.acquire_all(["job"], wait_s=-1)
        self.daemon.settles()


class Places(Quiet):
    """Semaphores."""

    def test_so_many_get_in_and_no_more(self):
        for ttl_s in WAYS:
            wish = {"of": 3, "ttl_s": ttl_s}
            held = [self.locks.acquire("seat", **wish) for _ in range(3)]
            tokens = [one.token for one in held]
            self.assertEqual(tokens, sorted(set(tokens)))
            self.assertFalse(self.is_free("seat", **wish))
            held.pop(1).release()
            held.append(self.locks.acquire("seat", wait_s=0, **wish))
            self.assertFalse(self.is_free("seat", **wish))
            self.assertEqual(self.daemon.info("holds"), 3)
            for one in held:
                one.release()
            self.daemon.settles()

    def test_those_beyond_wait_for_their_turn(self):
        guard, inside, most, go = threading.Lock(), [0], [0], threading.Event()

        def work():
            with self.locks.acquire("seat", of=3, wait_s=60):
                with guard:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                go.wait(120)
                with guard:
                    inside[0] -= 1

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = [pool.submit(work) for _ in range(8)]
            eventually("three are in", lambda: inside[0] == 3)
            eventually("five wait", lambda: self.daemon.info("waiters") == 5)
            go.set()
            for one in done:
                one.result()
        self.assertEqual((inside[0], most[0]), (0, 3))

    def test_another_number_of_places_is_refused(self):
        with self.locks.acquire("seat", of=2):
            with self.assertRaisesRegex(Refused, "BADLIMIT"):
                self.locks.acquire("seat", of=3, wait_s=0)


class Sessions(Quiet):
    """Many locks that are renewed together."""

    def test_a_session_owns_its_locks_until_it_is_closed(self):
        with self.locks.session() as session:
            a, b = session.acquire("a"), session.acquire("b")
            self.assertGreater(b.token, a.token)
            with session.acquire("c") as c:
                self.assertGreater(c.token, b.token)
                self.assertFalse(self.is_free("c"))
            self.assertTrue(self.is_free("c"))
            a.release()
            a.release()  # Nothing happens.
            self.assertTrue(self.is_free("a"))
            self.assertFalse(self.is_free("b"))
            with self.assertRaisesRegex(Refused, "ALREADYHELD"):
                session.acquire("b", wait_s=0)
            self.assertFalse(b.lost)
            # Its own connection alone is open, and the one for releases.
            eventually("3 clients", lambda: self.daemon.info("connected_clients") == 3)
        self.assertTrue(b.lost)
        with self.assertRaisesRegex(LockLost, "was closed"):
            session.acquire("d")
        self.assertEqual(self.daemon.info("sessions"), 0)
        self.daemon.settles()
        eventually("1 client", lambda: self.daemon.info("connected_clients") == 1)

    def test_its_locks_are_waited_for_shared_and_counted(self):
        with self.locks.session() as one, self.locks.session() as two:
            with one.acquire("book", shared=True), two.acquire("book", shared=True):
                self.assertFalse(self.is_free("book"))
            with one.acquire("seat", of=2), two.acquire("seat", of=2):
                self.assertFalse(self.is_free("seat", of=2))
            job = one.acquire("job")
            with self.assertRaises(NotGranted):
                two.acquire("job", wait_s=0.05)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waits = pool.submit(two.acquire, "job", wait_s=60)
                eventually("it waits", lambda: self.daemon.info("waiters") == 1)
                job.release()
                self.assertGreater(waits.result().token, job.token)

    @often
    def test_one_renewal_is_enough_for_all(self):
        with self.locks.session(ttl_s=600) as session:
            held = [session.acquire(f"job{n}") for n in range(20)]
            before = self.daemon.info("cmd_session")
            eventually("renewals", lambda: self.daemon.info("cmd_session") >= before + 4)
            for one in held:
                one.check()
            self.assertEqual(self.daemon.info("holds"), 20)
        self.daemon.settles()

    @often
    def test_a_session_that_was_ended_is_lost(self):
        told = []
        session = self.locks.session(ttl_s=600, on_lost=told.append)
        held = session.acquire("job")
        self.daemon.ask("SESSION", "CLOSE", session.id)
        eventually("told", lambda: told == [session])
        for lost in [session.check, session.close, held.check, held.release]:
            with self.assertRaisesRegex(LockLost, "NOSESSION") as raised:
                lost()
            self.assertNotIn(session.id, str(raised.exception))
        self.assertTrue(session.lost and held.lost)

    def test_who_waits_in_the_name_of_a_session_that_ends_is_told(self):
        told = []
        session = self.locks.session(ttl_s=600, on_lost=told.append)
        with self.locks.acquire("job"):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waits = pool.submit(session.acquire, "job", wait_s=60)
                eventually("it waits", lambda: self.daemon.info("waiters") == 1)
                self.daemon.ask("SESSION", "CLOSE", session.id)
                with self.assertRaisesRegex(LockLost, "NOSESSION"):
                    waits.result()
        eventually("told", lambda: told == [session])

    def test_a_lock_that_was_taken_away_is_reported_by_its_release(self):
        with self.locks.session() as session:
            held = session.acquire("job")
            self.daemon.ask("FORCEUNLOCK", "job")
            with self.assertRaisesRegex(LockLost, "NOT"):
                held.release()
            self.assertTrue(held.lost)
            session.check()

    def test_a_session_that_is_over_is_not_taken_up(self):
        with self.assertRaisesRegex(LockLost, "NOSESSION"):
            self.locks.session(id="0" * 32)
        for wrong in [None, 0]:
            with self.assertRaises(ValueError):
                self.locks.session(ttl_s=wrong)


class Faults(InEach):
    """The daemon is killed, stopped, or cannot be reached."""

    @often
    def test_a_holder_of_several_is_told_that_they_are_lost(self):
        def case(world, fault, ttl_s):
            told, wish = [], {"ttl_s": ttl_s}
            held = insist(
                lambda: world.locks.acquire_all(["a", "b"], on_lost=told.append, **wish)
            )
            world.begin(fault, held)
            eventually("lost", lambda: held.lost and told)
            for lost in [held.check, held.release]:
                with self.assertRaises(LockLost):
                    lost()
            self.assertEqual(told, [held])
            if fault != "killed":
                world.end(fault)
                world.daemon.settles()

        self.in_each(["stopped", "cut off", "killed"], [None, 1.5], case)

    def test_nothing_stays_behind_when_several_are_not_answered(self):
        def case(world, fault, ttl_s):
            world.begin(fault)
            with self.assertRaises(NoAnswer):
                world.locks.acquire_all(["a", "b"], ttl_s=ttl_s, wait_s=0.1)
            world.end(fault)
            world.daemon.settles()

        self.in_each(["stopped", "cut off"], [None, 600], case)

    def test_who_gives_up_waiting_for_several_leaves_all_lines(self):
        def case(world, fault, ttl_s):
            with Locks(world.daemon.url, timeout_s=60).acquire("b") as first:
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    world.hurry()
                    waits = pool.submit(
                        world.locks.acquire_all, ["a", "b"], ttl_s=ttl_s, wait_s=1
                    )
                    eventually(
                        "it waits or has given up",
                        lambda: world.daemon.info("waiters") == 2 or waits.done(),
                    )
                    world.begin(fault)
                    with self.assertRaises((NoAnswer, NotGranted)):
                        waits.result()
                world.end(fault)
                eventually("no waiters", lambda: world.daemon.info("waiters") == 0)
                Locks(world.daemon.url, timeout_s=PATIENT_S).acquire("a", wait_s=0).release()
                first.check()
            world.daemon.settles()

        self.in_each(["stopped", "cut off"], [None, 600], case)

    def test_a_session_is_lost_with_all_its_locks(self):
        def case(world, fault, ttl_s):
            def take():
                told = []
                session = world.locks.session(ttl_s=ttl_s, on_lost=told.append)
                return told, session, [session.acquire(name) for name in ("a", "b")]

            told, session, held = insist(take)
            world.begin(fault, session)
            eventually("lost", lambda: session.lost and told)
            calls = [session.check, session.close, lambda: session.acquire("c")]
            for lost in [*calls, *(one.check for one in held), *(one.release for one in held)]:
                with self.assertRaises(LockLost):
                    lost()
            self.assertEqual(told, [session])
            if fault != "killed":
                world.end(fault)
                world.daemon.settles()
                self.assertEqual(world.daemon.info("sessions"), 0)

        self.in_each(["stopped", "cut off", "killed"], [1.5], case)

    def test_who_gives_up_waiting_in_a_session_leaves_the_line(self):
        def case(world, fault, ttl_s):
            session = world.locks.session(ttl_s=ttl_s)
            with Locks(world.daemon.url, timeout_s=60).acquire("job"):
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    world.hurry()
                    waits = pool.submit(session.acquire, "job", wait_s=1)
                    eventually(
                        "it waits or has given up",
                        lambda: world.daemon.info("waiters") == 1 or waits.done(),
                    )
                    world.begin(fault)
                    with self.assertRaises((NoAnswer, NotGranted)):
                        waits.result()
                world.end(fault)
                eventually("no waiters", lambda: world.daemon.info("waiters") == 0)
            session.close()
            world.daemon.settles()

        self.in_each(["stopped", "cut off"], [600], case)

    def test_a_request_whose_answer_was_lost_finds_its_lock(self):
        for wish in [{}, {"shared": True}, {"of": 3}]:
            with World() as world:
                with world.locks.session(ttl_s=60) as session:
                    world.link.lose_answer_to(b"LOCK")
                    with self.assertRaises(NoAnswer):
                        session.acquire("job", **wish)
                    self.assertEqual(world.daemon.info("holds"), 1)
                    grants = world.daemon.info("grants")
                    with session.acquire("job", **wish) as held:
                        self.assertEqual(held.token, grants)
                        self.assertEqual(world.daemon.info("holds"), 1)
                        # It is one lock, held once: who asks beside it is refused.
                        with self.assertRaisesRegex(Refused, f"ALREADYHELD {held.token}"):
                            session.acquire("job", **wish)
                    world.daemon.settles()
                    with session.acquire("job", **wish) as again:
                        self.assertGreater(again.token, held.token)
                world.daemon.settles()

    def test_a_retry_finds_the_lock_of_the_request_whose_answer_was_lost(self):
        with World() as world:
            with world.locks.session(ttl_s=60) as session:
                world.link.lose_answer_to(b"LOCK")
                # Each retry comes after a part of the timeout.
                world.locks._retries = 20
                world.hurry()
                with session.acquire("job") as held:
                    self.assertEqual(held.token, world.daemon.info("grants"))
                world.daemon.settles()

    def test_a_retry_does_not_wait_for_the_request_that_it_repeats(self):
        with World() as world:
            with world.locks.session(ttl_s=60) as session:
                other = Locks(world.daemon.url, timeout_s=PATIENT_S).acquire("job")
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    # Both connections are there for the daemon, as behind a link that
                    # is cut: it grants to the first, and the second one is told.
                    first = Ask(world.daemon, "LOCK", "job", "SESSION", session.id)
                    eventually("it waits", lambda: world.daemon.info("waiters") == 1)
                    session._known.doubt("job")
                    waits = pool.submit(session.acquire, "job", wait_s=None)
                    eventually("both wait", lambda: world.daemon.info("waiters") == 2)
                    other.release()
                    held = waits.result()
                self.assertEqual(held.token, world.daemon.info("grants"))
                held.release()
                first.close()
            world.daemon.settles()

    def test_a_lost_answer_is_claimed_by_one_of_several_threads_alone(self):
        with World() as world, world.locks.session(ttl_s=60) as session:
            world.link.lose_answer_to(b"LOCK")
            with self.assertRaises(NoAnswer):
                session.acquire("job")

            def attempt(_):
                try:
                    return session.acquire("job", wait_s=0)
                except Refused as error:
                    self.assertRegex(str(error), "ALREADYHELD")

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                held = [one for one in pool.map(attempt, range(16)) if one]
            self.assertEqual(len(held), 1)

    def test_a_lost_answer_is_not_taken_for_another_kind_of_lock(self):
        with World() as world, world.locks.session(ttl_s=60) as session:
            world.link.lose_answer_to(b"LOCK")
            with self.assertRaises(NoAnswer):
                session.acquire("job", shared=True)
            with self.assertRaisesRegex(Refused, r"ALREADYHELD \d+ shared"):
                session.acquire("job")
            session.acquire("job", shared=True).release()
            session.acquire("job").release()

    def test_a_session_that_is_taken_up_claims_no_lock_that_it_did_not_ask_for(self):
        with World() as world:
            with world.locks.session(ttl_s=60) as first:
                token = first.acquire("job").token
                second = world.locks.session(ttl_s=60, id=first.id)
                with self.assertRaisesRegex(Refused, f"ALREADYHELD {token} exclusive"):
                    second.acquire("job")
                second.held("job", token).release()
                second.acquire("job").release()

    def test_a_release_that_is_not_answered_leaves_the_lock_to_its_session(self):
        def case(world, fault, ttl_s):
            session = world.locks.session(ttl_s=ttl_s)
            held = session.acquire("job")
            world.begin(fault, session)
            with self.assertRaises(NoAnswer):
                held.release()
            self.assertFalse(held.lost)
            world.end(fault)
            session.close()
            world.daemon.settles()

        self.in_each(["stopped", "cut off"], [600], case)

    @often
    def test_a_session_outlives_a_link_that_is_cut_for_a_moment(self):
        told = []
        with World() as world, world.locks.session(ttl_s=600, on_lost=told.append) as session:
            with session.acquire("job") as held:
                opened = world.link.opened
                world.begin("cut off", session)
                eventually("another connection", lambda: world.link.opened > opened)
                world.end("cut off")
                before = world.daemon.info("cmd_session")
                eventually("a renewal", lambda: world.daemon.info("cmd_session") > before)
                held.check()
        self.assertEqual(told, [])

    @often
    def test_a_session_that_is_taken_up_again_keeps_its_locks(self):
        with World() as world:
            first = world.locks.session(ttl_s=600)
            token = first.acquire("job").token
            direct = Locks(world.daemon.url, timeout_s=PATIENT_S)
            with direct.session(ttl_s=600, id=first.id) as session:
                world.begin("cut off", first)
                # Renewed over the other connection alone.
                before = world.daemon.info("cmd_session")
                eventually("renewals", lambda: world.daemon.info("cmd_session") >= before + 3)
                with self.assertRaises(NotGranted):
                    direct.acquire("job", wait_s=0)
                held = session.held("job", token)
                held.check()
                held.release()
                self.assertGreater(session.acquire("job").token, token)
            world.end("cut off")
            with self.assertRaises(LockLost):
                first.close()
            world.daemon.settles()


if __name__ == "__main__":
    unittest.main()
