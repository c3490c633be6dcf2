package jostle.lock;

import static jostle.lock.Service.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.NotGranted;
import jostle.lock.LockException.Refused;
import jostle.lock.Service.Daemon;
import jostle.lock.Service.Link;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;

/** Against a daemon that is killed, stopped and cut off. */
class LocksTest {
    private static final Wish AT_ONCE = Wish.waiting(Duration.ZERO);
    private static final Wish SOON = Wish.waiting(Duration.ofSeconds(10));

    /** A daemon, a link to it, and its locks. */
    static final class World implements AutoCloseable {
        final Daemon daemon = new Daemon();
        final Link link = new Link(daemon);
        final Locks locks = locks(link.port(), 1, 0);

        World() throws Exception {}

        static Locks locks(int port, int seconds, int retries) {
            var config = DefaultJedisClientConfig.builder().build();
            return new Locks(new HostAndPort("127.0.0.1", port), config, Duration.ofSeconds(seconds), retries);
        }

        void begin(String fault) throws Exception {
            if (fault.equals("cut off")) {
                link.set(true);
            } else {
                daemon.signal(fault.equals("killed") ? "-KILL" : "-STOP");
            }
        }

        void end(String fault) throws Exception {
            link.set(false);
            daemon.signal("-CONT");
        }

        @Override
        public void close() throws Exception {
            link.close();
            daemon.close();
        }
    }

    private static Wish with(Wish wish, int ttlMillis) {
        return ttlMillis == 0 ? wish : wish.ttl(Duration.ofMillis(ttlMillis));
    }

    @ParameterizedTest
    @CsvSource({"0", "60000"})
    void aLockExcludesAndTokensGrow(int ttl) throws Exception {
        try (World world = new World()) {
            long last = 0;
            for (int n = 0; n < 2; n++) {
                Held held = world.locks.acquire("job", with(SOON, ttl));
                assertTrue(held.token() > last && !held.isLost());
                last = held.token();
                assertThrows(NotGranted.class, () -> world.locks.acquire("job", AT_ONCE));
                Wish little = Wish.waiting(Duration.ofMillis(50));
                assertThrows(NotGranted.class, () -> world.locks.acquire("job", little));
                held.close();
                held.close(); // Nothing happens.
                world.daemon.settles();
            }
        }
    }

    @Test
    void withoutAPasswordItTellsWhatToGive(@TempDir Path directory) throws Exception {
        Path file = Files.writeString(directory.resolve("password"), "secret");
        try (Daemon daemon = new Daemon("--password-file", file.toString())) {
            Locks locks = World.locks(daemon.port, 10, 0);
            Refused refused = assertThrows(Refused.class, () -> locks.acquire("job", AT_ONCE));
            assertTrue(refused.getMessage().contains("NOAUTH give user and password"), refused.getMessage());
            var config = DefaultJedisClientConfig.builder().password("secret").build();
            var address = new HostAndPort("127.0.0.1", daemon.port);
            new Locks(address, config, Duration.ofSeconds(10), 0).acquire("job", AT_ONCE).close();
        }
    }

    @Test
    void readersShareAndPlacesAreCounted() throws Exception {
        try (World world = new World()) {
            Locks locks = world.locks;
            try (Held a = locks.acquire("book", AT_ONCE.asShared()); Held b = locks.acquire("book", AT_ONCE.asShared())) {
                assertThrows(NotGranted.class, () -> locks.acquire("book", AT_ONCE));
            }
            try (Held a = locks.acquire("seat", AT_ONCE.of(2)); Held b = locks.acquire("seat", AT_ONCE.of(2))) {
                assertThrows(NotGranted.class, () -> locks.acquire("seat", AT_ONCE.of(2)));
                Refused error = assertThrows(Refused.class, () -> locks.acquire("seat", AT_ONCE.of(3)));
                assertTrue(error.getMessage().startsWith("BADLIMIT"));
            }
        }
    }

    @Test
    void aLeaseIsRenewedWhileItIsHeld() throws Exception {
        try (World world = new World()) {
            try (Held held = world.locks.acquire("job", with(SOON, 3000))) {
                eventually("renewals", () -> world.daemon.info("renewals") >= 3);
                held.check();
            }
            assertEquals(0, world.daemon.info("expirations"));
        }
    }

    @Test
    void aLockThatIsTakenAwayIsReported() throws Exception {
        try (World world = new World()) {
            List<Held> told = new CopyOnWriteArrayList<>();
            Held held = world.locks.acquire("job", with(SOON, 3000).onLost(told::add));
            world.daemon.ask("FORCEUNLOCK job");
            eventually("told", () -> !told.isEmpty());
            LockLost error = assertThrows(LockLost.class, held::check);
            assertTrue(error.getMessage().contains("NOTOWNER"));
            assertThrows(LockLost.class, held::close);
            Held other = world.locks.acquire("job", SOON);
            world.daemon.ask("FORCEUNLOCK job");
            assertThrows(LockLost.class, other::close);
        }
    }

    @Test
    void wishesThatMakeNoSenseAreTold() {
        assertThrows(IllegalArgumentException.class, () -> Wish.waiting(Duration.ofMillis(-1)));
        assertThrows(IllegalArgumentException.class, () -> SOON.ttl(Duration.ofMillis(1)));
        assertThrows(IllegalArgumentException.class, () -> SOON.asShared().of(2));
        assertThrows(IllegalArgumentException.class, () -> World.locks(1, 0, 0));
    }

    @ParameterizedTest
    @CsvSource({"stopped,0", "stopped,1500", "cut off,0", "cut off,1500", "killed,0", "killed,1500"})
    void aHolderIsToldThatItsLockIsLost(String fault, int ttl) throws Exception {
        try (World world = new World()) {
            List<Held> told = new CopyOnWriteArrayList<>();
            Held held = world.locks.acquire("job", with(SOON, ttl).onLost(told::add));
            assertFalse(held.isLost());
            world.begin(fault);
            eventually("lost", () -> held.isLost() && !told.isEmpty());
            assertThrows(LockLost.class, held::check);
            assertThrows(LockLost.class, held::close);
            assertEquals(List.of(held), told);
            if (!fault.equals("killed")) {
                world.end(fault);
                world.daemon.settles();
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"stopped,0", "stopped,600000", "cut off,0", "cut off,600000"})
    void nothingStaysBehindWhenNoAnswerComes(String fault, int ttl) throws Exception {
        try (World world = new World()) {
            world.begin(fault);
            Wish wish = with(Wish.waiting(Duration.ofMillis(100)), ttl);
            assertThrows(NoAnswer.class, () -> world.locks.acquire("job", wish));
            world.end(fault);
            world.daemon.settles();
        }
    }

    @ParameterizedTest
    @CsvSource({"stopped,0", "stopped,600000", "cut off,0", "cut off,600000"})
    void aWaiterThatGivesUpLeavesTheLine(String fault, int ttl) throws Exception {
        var threads = Executors.newSingleThreadExecutor();
        try (World world = new World()) {
            try (Held first = World.locks(world.daemon.port, 60, 0).acquire("job", SOON)) {
                Wish wish = with(Wish.waiting(Duration.ofSeconds(1)), ttl);
                var waits = threads.submit(() -> world.locks.acquire("job", wish));
                eventually("it waits", () -> world.daemon.info("waiters") == 1);
                world.begin(fault);
                var error = assertThrows(ExecutionException.class, waits::get);
                assertEquals(NoAnswer.class, error.getCause().getClass());
                world.end(fault);
                eventually("no waiters", () -> world.daemon.info("waiters") == 0);
                first.check();
            }
            world.daemon.settles();
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void aKilledDaemonGivesNoAnswer() throws Exception {
        try (World world = new World()) {
            world.begin("killed");
            assertThrows(NoAnswer.class, () -> world.locks.acquire("job", SOON));
        }
    }

    @Test
    void aLeaseOutlivesALinkThatIsCutForAMoment() throws Exception {
        try (World world = new World()) {
            try (Held held = world.locks.acquire("job", with(SOON, 3000))) {
                int before = world.daemon.info("renewals");
                world.begin("cut off");
                eventually("another connection", () -> world.link.opened() >= 2);
                world.end("cut off");
                eventually("a renewal", () -> world.daemon.info("renewals") > before);
                held.check();
            }
            world.daemon.settles();
        }
    }

    @Test
    void aLeaseIsRenewedAtOnceWhenItsConnectionBreaks() throws Exception {
        try (World world = new World()) {
            // It would be renewed after 20 minutes.
            try (Held held = world.locks.acquire("job", with(SOON, 3_600_000))) {
                int before = world.daemon.info("renewals");
                String holder = world.daemon.ask("HOLDER job").split("client\r\n:")[1];
                world.daemon.ask("CLIENT KILL ID " + holder.split("\r\n")[0]);
                eventually("a renewal", () -> world.daemon.info("renewals") > before);
            }
        }
    }

    @Test
    void aSecondAttemptGetsTheLock() throws Exception {
        var threads = Executors.newSingleThreadExecutor();
        try (World world = new World()) {
            world.begin("cut off");
            Locks locks = World.locks(world.link.port(), 1, 5);
            var attempts = threads.submit(() -> locks.acquire("job", Wish.waiting(Duration.ofMillis(500))));
            eventually("another attempt", () -> world.link.opened() >= 2);
            world.end("cut off");
            try (Held held = attempts.get()) {
                eventually("one hold", () -> world.daemon.info("holds") == 1);
                assertEquals(0, world.daemon.info("waiters"));
                held.check();
            }
            world.daemon.settles();
        } finally {
            threads.shutdown();
        }
    }

    private static int ttlMillis(Daemon daemon) {
        var found = java.util.regex.Pattern.compile("ttl-ms\r\n:(\\d+)").matcher(daemon.ask("HOLDER job"));
        return found.find() ? Integer.parseInt(found.group(1)) : 0;
    }

    @Test
    void onlyWhatIsHeldForLongIsRenewed() throws Exception {
        try (Daemon daemon = new Daemon()) {
            Wish wish = SOON.ttl(Duration.ofMinutes(1));
            try (Held held = World.locks(daemon.port, 20, 0).acquire("job", wish)) {
                assertTrue(ttlMillis(daemon) > 30_000);
            }
            assertEquals(0, daemon.info("renewals"));
            // Such a lease is short until the first renewal.
            try (Held held = World.locks(daemon.port, 5, 0).acquire("job", wish)) {
                eventually("longer", () -> ttlMillis(daemon) > 30_000);
            }
        }
    }

    @Test
    void eachAddressOfTheNameIsTriedAndASilentOneLast() throws Exception {
        try (Daemon daemon = new Daemon();
                var silent = new java.net.ServerSocket(daemon.port, 50, InetAddress.getByName("127.0.0.2"))) {
            // Of src/test/resources/hosts.
            HostAndPort name = new HostAndPort("locks.test", daemon.port);
            var config = DefaultJedisClientConfig.builder().build();
            new Locks(name, config, Duration.ofSeconds(1), 20).acquire("job", SOON).close();
        }
    }

    @Test
    void aLeaseIsCountedFromBeforeItWasSentAndStaysOver() {
        long sent = System.nanoTime() - 5_000_000_000L;
        Term late = new Term(Duration.ofSeconds(4), Duration.ofSeconds(4), Duration.ofSeconds(1), sent);
        late.extend(System.nanoTime());
        assertTrue(late.isOver());
        assertFalse(new Term(Duration.ofSeconds(60), Duration.ofSeconds(60), Duration.ofSeconds(1), sent).isOver());
        assertFalse(new Term(null, null, Duration.ofSeconds(1), sent).isOver());
    }
}
