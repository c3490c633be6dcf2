package jostle.lock;

import static jostle.lock.ManyTest.failing;
import static jostle.lock.ManyTest.is;
import static jostle.lock.ManyTest.lost;
import static jostle.lock.ManyTest.refused;
import static jostle.lock.Service.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.NotGranted;
import jostle.lock.LocksTest.World;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Sessions, against a daemon that is killed, stopped and cut off. */
class SessionsTest {
    private static final Wish AT_ONCE = Wish.waiting(Duration.ZERO);
    private static final Wish SOON = Wish.waiting(Duration.ofSeconds(10));
    private static final Wish LATE = Wish.waiting(Duration.ofSeconds(60));
    private static final Duration HOUR = Duration.ofHours(1);

    @Test
    void aSessionOwnsItsLocksUntilItIsClosed() throws Exception {
        try (World world = new World()) {
            Session session = world.locks.session(HOUR, null);
            Session other = world.locks.session(HOUR, null);
            SessionHeld a = session.acquire("a", SOON);
            SessionHeld b = session.acquire("b", SOON.of(2));
            assertTrue(b.token() > a.token());
            a.close();
            a.close(); // Nothing happens.
            world.locks.acquire("a", AT_ONCE).close();
            other.acquire("b", AT_ONCE.of(2));
            assertThrows(NotGranted.class, () -> world.locks.acquire("b", AT_ONCE.of(2)));
            refused("ALREADYHELD", () -> session.acquire("b", AT_ONCE.of(2)));
            try (SessionHeld c = session.acquire("c", SOON)) {
                Wish little = Wish.waiting(Duration.ofMillis(50));
                assertThrows(NotGranted.class, () -> other.acquire("c", little));
                c.check();
            }
            assertFalse(b.isLost());
            assertEquals(2, world.daemon.info("holds"));
            session.close();
            session.close(); // Nothing happens.
            assertTrue(b.isLost());
            lost("was closed", () -> session.acquire("d", SOON));
            other.close();
            is(world, "sessions", 0);
            world.daemon.settles();
            is(world, "connected_clients", 1);
        }
    }

    @Test
    void oneRenewalIsEnoughForAllLocksOfASession() throws Exception {
        try (World world = new World();
                Session session = world.locks.session(Duration.ofSeconds(3), null)) {
            for (int n = 0; n < 20; n++) {
                session.acquire("job" + n, SOON);
            }
            int before = world.daemon.info("cmd_session");
            eventually("renewals", () -> world.daemon.info("cmd_session") >= before + 4);
            session.check();
            assertEquals(20, world.daemon.info("holds"));
        }
    }

    @Test
    void whoWaitsInTheNameOfASessionThatEndsIsTold() throws Exception {
        ExecutorService threads = Executors.newSingleThreadExecutor();
        try (World world = new World()) {
            List<Session> told = new CopyOnWriteArrayList<>();
            Session session = world.locks.session(HOUR, told::add);
            SessionHeld mine = session.acquire("other", SOON);
            try (Held held = world.locks.acquire("job", SOON)) {
                var waits = threads.submit(() -> session.acquire("job", LATE));
                is(world, "waiters", 1);
                world.daemon.ask("SESSION CLOSE " + session.id());
                LockLost error = failing(LockLost.class, waits);
                assertTrue(error.getMessage().contains("NOSESSION"));
                assertFalse(error.getMessage().contains(session.id()));
                held.check();
            }
            eventually("told", () -> !told.isEmpty());
            assertEquals(List.of(session), told);
            assertThrows(LockLost.class, mine::close);
            assertThrows(LockLost.class, session::close);
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void aLockOfASessionThatWasTakenAwayIsReportedByItsRelease() throws Exception {
        try (World world = new World();
                Session session = world.locks.session(HOUR, null)) {
            SessionHeld held = session.acquire("job", SOON);
            world.daemon.ask("FORCEUNLOCK job");
            lost("NOT", held::close);
            assertTrue(held.isLost());
            assertFalse(session.isLost());
        }
    }

    @Test
    void sessionsThatMakeNoSenseAreTold() throws Exception {
        try (World world = new World();
                Session session = world.locks.session(HOUR, null)) {
            lost("NOSESSION", () -> world.locks.takeUp("0".repeat(32), HOUR, null));
            assertThrows(IllegalArgumentException.class, () -> world.locks.session(Duration.ZERO, null));
            assertThrows(IllegalArgumentException.class, () -> session.acquire("a", SOON.ttl(HOUR)));
            assertThrows(IllegalArgumentException.class, () -> session.acquire("a", SOON.onLost(held -> {})));
        }
    }

    @ParameterizedTest
    @CsvSource({"stopped", "cut off", "killed"})
    void aSessionIsLostWithAllItsLocks(String fault) throws Exception {
        try (World world = new World()) {
            List<Session> told = new CopyOnWriteArrayList<>();
            Session session = world.locks.session(Duration.ofMillis(1500), told::add);
            List<SessionHeld> held = List.of(session.acquire("a", SOON), session.acquire("b", SOON));
            world.begin(fault);
            eventually("lost", () -> session.isLost() && !told.isEmpty());
            for (SessionHeld one : held) {
                assertTrue(one.isLost());
                assertThrows(LockLost.class, one::close);
            }
            assertThrows(LockLost.class, () -> session.acquire("c", SOON));
            assertThrows(LockLost.class, session::close);
            assertEquals(List.of(session), told);
            if (!fault.equals("killed")) {
                world.end(fault);
                world.daemon.settles();
                is(world, "sessions", 0);
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"stopped", "cut off"})
    void whoGivesUpWaitingInASessionLeavesTheLine(String fault) throws Exception {
        ExecutorService threads = Executors.newSingleThreadExecutor();
        try (World world = new World()) {
            Session session = world.locks.session(HOUR, null);
            SessionHeld held = session.acquire("other", SOON);
            try (Held first = World.locks(world.daemon.port, 60, 0).acquire("job", SOON)) {
                var waits = threads.submit(() -> session.acquire("job", Wish.waiting(Duration.ofSeconds(1))));
                is(world, "waiters", 1);
                world.begin(fault);
                failing(NoAnswer.class, waits);
                assertThrows(NoAnswer.class, held::close); // The session may still have it.
                assertFalse(held.isLost());
                world.end(fault);
                is(world, "waiters", 0);
                first.check();
            }
            session.close();
            world.daemon.settles();
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void aSessionOutlivesALinkThatIsCutForAMoment() throws Exception {
        try (World world = new World();
                Session session = world.locks.session(Duration.ofSeconds(3), null);
                SessionHeld held = session.acquire("job", SOON)) {
            int opened = world.link.opened();
            world.begin("cut off");
            eventually("another connection", () -> world.link.opened() > opened);
            world.link.set(false);
            int before = world.daemon.info("cmd_session");
            eventually("a renewal", () -> world.daemon.info("cmd_session") > before);
            held.check();
        }
    }

    @Test
    void aSessionThatIsTakenUpAgainKeepsItsLocks() throws Exception {
        try (World world = new World()) {
            Duration ttl = Duration.ofSeconds(3);
            Session first = world.locks.session(ttl, null);
            long token = first.acquire("job", SOON).token();
            Locks direct = World.locks(world.daemon.port, 5, 0);
            try (Session session = direct.takeUp(first.id(), ttl, null)) {
                world.begin("cut off");
                // Renewed over the other connection alone, for longer than it lasts.
                eventually("the first one is lost", first::isLost);
                int before = world.daemon.info("cmd_session");
                eventually("renewals", () -> world.daemon.info("cmd_session") >= before + 3);
                assertThrows(NotGranted.class, () -> direct.acquire("job", AT_ONCE));
                session.held("job", token).close();
                assertTrue(session.acquire("job", SOON).token() > token);
            }
            world.link.set(false);
            world.daemon.settles();
        }
    }

    @Test
    void aRequestWhoseAnswerWasLostFindsItsLock() throws Exception {
        for (Wish wish : List.of(SOON, SOON.asShared(), SOON.of(3))) {
            try (World world = new World()) {
                Session session = world.locks.session(HOUR, null);
                world.link.loseAnswerTo("LOCK");
                assertThrows(NoAnswer.class, () -> session.acquire("job", wish));
                SessionHeld held = session.acquire("job", wish);
                assertEquals(1, held.token());
                assertEquals(1, world.daemon.info("holds"));
                // It is one lock, held once: who asks beside it is refused.
                refused("ALREADYHELD", () -> session.acquire("job", wish));
                held.close();
                world.daemon.settles();
                assertEquals(2, session.acquire("job", wish).token());
                session.close();
            }
        }
    }

    @Test
    void aRetryFindsTheLockOfTheRequestThatItRepeats() throws Exception {
        try (World world = new World()) {
            var locks = World.locks(world.link.port(), 1, 1);
            Session session = locks.session(HOUR, null);
            world.link.loseAnswerTo("LOCK");
            SessionHeld held = session.acquire("job", SOON);
            assertEquals(1, held.token());
            assertEquals(1, world.daemon.info("grants"));
            // One that is taken up claims nothing that it did not ask for.
            Session other = locks.takeUp(session.id(), HOUR, null);
            refused("ALREADYHELD", () -> other.acquire("job", SOON));
            held.close();
            world.daemon.settles();
            session.close();
        }
    }
}
