"""Locks with threads, against a daemon that is killed, stopped and cut off."""

import concurrent.futures
import os
import re
import socket
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

from jostle_lock import Locks, LockLost, NoAnswer, NotGranted, Refused
from jostle_lock._terms import Term
from service import PATIENT_S, Daemon, InEach, World, eventually, insist, often


class Quiet(unittest.TestCase):
    """Nothing goes wrong with the daemon."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.locks = Locks(self.daemon.url, timeout_s=PATIENT_S)

    def test_a_lock_excludes_and_tokens_grow(self):
        tokens = []
        for ttl_s in [None, 60]:
            with self.locks.acquire("job", ttl_s=ttl_s) as held:
                self.assertFalse(held.lost)
                tokens.append(held.token)
                with self.assertRaises(NotGranted):
                    self.locks.acquire("job", wait_s=0)
                with self.assertRaises(NotGranted):
                    self.locks.acquire("job", wait_s=0.05)
            self.daemon.settles()
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_without_a_password_it_tells_what_to_give(self):
        with tempfile.NamedTemporaryFile("w") as file:
            print("secret", file=file, flush=True)
            daemon = Daemon("--password-file", file.name)
        self.addCleanup(daemon.close)
        with self.assertRaisesRegex(Refused, "^NOAUTH give user and password"):
            Locks(daemon.url, timeout_s=PATIENT_S).acquire("job")
        url = daemon.url.replace("//", "//:secret@")
        Locks(url, timeout_s=PATIENT_S).acquire("job").release()

    def test_threads_count_without_losing_a_step(self):
        counter, tokens = [0], []

        def work():
            for _ in range(20):
                with self.locks.acquire("counter", ttl_s=60, wait_s=60) as held:
                    seen = counter[0]
                    tokens.append(held.token)
                    time.sleep(0)
                    counter[0] = seen + 1

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(counter[0], 100)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_readers_share_and_places_are_counted(self):
        with self.locks.acquire("book", shared=True), self.locks.acquire("book", shared=True):
            with self.assertRaises(NotGranted):
                self.locks.acquire("book", wait_s=0)
        with self.locks.acquire("seat", of=2), self.locks.acquire("seat", of=2):
            with self.assertRaises(NotGranted):
                self.locks.acquire("seat", of=2, wait_s=0)
            with self.assertRaisesRegex(Refused, "BADLIMIT"):
                self.locks.acquire("seat", of=3, wait_s=0)

    @often
    def test_a_lease_is_renewed_while_the_block_runs(self):
        with self.locks.acquire("job", ttl_s=600) as held:
            eventually("renewals", lambda: self.daemon.info("renewals") >= 3)
            held.check()
        self.assertEqual(self.daemon.info("expirations"), 0)
        self.daemon.settles()

    def test_only_what_is_held_for_long_is_renewed(self):
        with self.locks.acquire("job", ttl_s=180):
            self.assertGreater(self.ttl_ms("job"), 100_000)
        self.assertEqual(self.daemon.info("renewals"), 0)
        # Such a lease is short until the first renewal.
        with Locks(self.daemon.url, timeout_s=20).acquire("job", ttl_s=600):
            eventually("longer", lambda: self.ttl_ms("job") > 100_000)

    def ttl_ms(self, name):
        return int(re.search(rb"ttl-ms\r\n:(\d+)", self.daemon.ask("HOLDER", name))[1])

    def test_each_address_of_the_name_is_tried_and_a_silent_one_last(self):
        port, kind = self.daemon.port, (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        found = [(*kind, (f"127.0.0.{n}", port)) for n in (3, 2, 1)]
        names = unittest.mock.patch("socket.getaddrinfo", lambda *_, **__: found)
        with socket.create_server(("127.0.0.2", port)), names:
            locks = Locks(f"redis://locks:{port}", timeout_s=1)
            with self.assertRaises(NoAnswer):
                locks.acquire("job", wait_s=0)
            locks._timeout_s = PATIENT_S
            locks.acquire("job").release()

    def test_a_lease_that_was_waited_for_is_renewed_before_it_is_used(self):
        first, waited_s = self.locks.acquire("job"), [50]
        # By this clock it waits for 50 s, until the first one is released.
        clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() - waited_s[0])
        with unittest.mock.patch("jostle_lock._sync.time", clock):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waits = pool.submit(self.locks.acquire, "job", ttl_s=60, wait_s=None)
                eventually("it waits", lambda: self.daemon.info("waiters") == 1)
                waited_s[0] = 0
                first.release()
                with waits.result():
                    # On a busy machine the next one may have come as well.
                    self.assertGreaterEqual(self.daemon.info("renewals"), 1)

    @often
    def test_a_lock_that_is_taken_away_is_reported(self):
        told = threading.Event()
        held = self.locks.acquire("job", ttl_s=600, on_lost=lambda _: told.set())
        self.daemon.ask("FORCEUNLOCK", "job")
        self.assertTrue(told.wait(120))
        self.assertTrue(held.lost)
        with self.assertRaisesRegex(LockLost, "NOTOWNER"):
            held.check()
        with self.assertRaises(LockLost):
            held.release()

    def test_a_lock_that_was_taken_away_unnoticed_is_reported_by_its_release(self):
        held = self.locks.acquire("job")
        self.daemon.ask("FORCEUNLOCK", "job")
        with self.assertRaisesRegex(LockLost, "NOT"):
            held.release()

    def test_what_goes_wrong_in_the_block_comes_first(self):
        with self.assertRaises(ZeroDivisionError):
            with self.locks.acquire("job"):
                self.daemon.ask("FORCEUNLOCK", "job")
                1 / 0
        self.daemon.settles()

    def test_a_wrong_name_is_refused_and_leaves_no_connection(self):
        with self.assertRaisesRegex(Refused, "BADNAME"):
            self.locks.acquire("n" * 513)
        eventually("one client", lambda: self.daemon.info("connected_clients") == 1)

    def test_arguments_that_make_no_sense_are_told(self):
        for wrong in [{"wait_s": -1}, {"ttl_s": 0}, {"shared": True, "of": 2}]:
            with self.assertRaises(ValueError):
                self.locks.acquire("job", **wrong)
        with self.assertRaises(ValueError):
            Locks(self.daemon.url, timeout_s=0)
        with self.assertRaises(TypeError):
            Locks(self.daemon.url, no_such_option=1)


class Password(unittest.TestCase):
    def test_a_wrong_password_is_refused_at_once_and_a_right_one_taken(self):
        os.environ["JOSTLED_PASSWORD"] = "secret"
        self.addCleanup(os.environ.pop, "JOSTLED_PASSWORD")
        daemon = Daemon()
        self.addCleanup(daemon.close)
        Locks(daemon.url, password="secret", timeout_s=PATIENT_S).acquire("job").release()
        with self.assertRaises(Refused):
            Locks(daemon.url, password="wrong", retries=3, timeout_s=PATIENT_S).acquire("job")


class Faults(InEach):
    """The daemon is killed, stopped, or cannot be reached."""

    @often
    def test_a_holder_is_told_that_its_lock_is_lost(self):
        def case(world, fault, ttl_s):
            told = []
            held = insist(
                lambda: world.locks.acquire("job", ttl_s=ttl_s, on_lost=told.append)
            )
            world.begin(fault, held)
            eventually("lost", lambda: held.lost and told)
            with self.assertRaises(LockLost):
                held.check()
            with self.assertRaises(LockLost):
                held.release()
            self.assertEqual(told, [held])
            if fault != "killed":
                world.end(fault)
                world.daemon.settles()

        self.in_each(["stopped", "cut off", "killed"], [None, 1.5], case)

    def test_a_lease_is_renewed_at_once_when_its_connection_breaks(self):
        with World() as world:
            # It would be renewed after 200 s.
            held = world.locks.acquire("job", ttl_s=600)
            renewals, opened = world.daemon.info("renewals"), world.link.opened
            clients = world.daemon.ask("HOLDER", "job").split(b"client\r\n:")
            world.daemon.ask("CLIENT", "KILL", int(clients[1].split(b"\r\n")[0]))
            eventually("renewed", lambda: world.daemon.info("renewals") > renewals)
            self.assertEqual(world.link.opened, opened + 1)
            held.release()

    def test_nothing_stays_behind_when_no_answer_comes(self):
        def case(world, fault, ttl_s):
            world.begin(fault)
            with self.assertRaises(NoAnswer):
                world.locks.acquire("job", ttl_s=ttl_s, wait_s=0.1)
            world.end(fault)
            world.daemon.settles()

        self.in_each(["stopped", "cut off"], [None, 600], case)

    def test_a_waiter_that_gives_up_leaves_the_line(self):
        def case(world, fault, ttl_s):
            with Locks(world.daemon.url, timeout_s=60).acquire("job") as first:
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    world.hurry()
                    waiter = pool.submit(world.locks.acquire, "job", ttl_s=ttl_s, wait_s=1)
                    eventually(
                        "it waits or has given up",
                        lambda: world.daemon.info("waiters") == 1 or waiter.done(),
                    )
                    world.begin(fault)
                    with self.assertRaises((NoAnswer, NotGranted)):
                        waiter.result()
                world.end(fault)
                eventually("no waiters", lambda: world.daemon.info("waiters") == 0)
                first.check()
            world.daemon.settles()

        self.in_each(["stopped", "cut off"], [None, 600], case)

    def test_a_killed_daemon_gives_no_answer(self):
        with World() as world:
            world.begin("killed")
            with self.assertRaises(NoAnswer):
                world.locks.acquire("job")

    @often
    def test_a_lease_outlives_a_link_that_is_cut_for_a_moment(self):
        told = []
        with World() as world:
            with world.locks.acquire("job", ttl_s=600, on_lost=told.append) as held:
                world.begin("cut off", held)
                eventually("another connection", lambda: world.link.opened >= 2)
                before = world.daemon.info("renewals")
                world.end("cut off")
                eventually("a renewal", lambda: world.daemon.info("renewals") > before)
                held.check()
            self.assertEqual(told, [])
            world.daemon.settles()

    @often
    def test_a_second_attempt_gets_the_lock_and_the_first_leaves_nothing(self):
        def case(world, _, ttl_s):
            locks = Locks(world.link.url, timeout_s=1, retries=60)
            world.link.cut()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                attempts = pool.submit(locks.acquire, "job", ttl_s=ttl_s, wait_s=0.5)
                eventually("another attempt", lambda: world.link.opened >= 2)
                world.link.mend()
                try:
                    held = attempts.result()
                except (NotGranted, LockLost):
                    # The first attempt's lease was in the way: it ends with the timeout.
                    # Or its own, which is as short, has ended before it was known.
                    held = world.locks.acquire("job", ttl_s=ttl_s, wait_s=60)
            eventually("one hold", lambda: world.daemon.info("holds") == 1)
            eventually("no waiters", lambda: world.daemon.info("waiters") == 0)
            held.release()
            world.daemon.settles()

        self.in_each([None], [None, 600], case)


class Terms(unittest.TestCase):
    """The clock of a lock by itself."""

    def test_a_lease_is_counted_from_before_it_was_sent(self):
        sent = time.monotonic() - 5
        self.assertTrue(Term(4, 1, sent).is_over())
        self.assertFalse(Term(60, 1, sent).is_over())
        self.assertFalse(Term(None, 1, sent).is_over())

    def test_an_answer_that_comes_too_late_brings_nothing_back(self):
        term = Term(4, 1, time.monotonic() - 5)
        term.extend(time.monotonic())
        self.assertTrue(term.is_over())

    def test_renewals_leave_time_for_another_attempt(self):
        for ttl_s, timeout_s in [(0.3, 5), (3, 5), (600, 1)]:
            term = Term(ttl_s, timeout_s, time.monotonic())
            self.assertLessEqual(term.every_s + 2 * term.answer_s, ttl_s * 0.67)


if __name__ == "__main__":
    unittest.main()
