package jostle.lock;

import static jostle.lock.Service.eventually;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.NotGranted;
import jostle.lock.LockException.Refused;
import jostle.lock.LocksTest.World;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Several locks at once, and places, against a daemon that is killed, stopped and cut off. */
class ManyTest {
    private static final Wish AT_ONCE = Wish.waiting(Duration.ZERO);
    private static final Wish SOON = Wish.waiting(Duration.ofSeconds(10));
    private static final Wish LATE = Wish.waiting(Duration.ofSeconds(60));

    private static WishAll all(int waitMillis, int ttlMillis) {
        WishAll wish = WishAll.waiting(Duration.ofMillis(waitMillis));
        return ttlMillis == 0 ? wish : wish.ttl(Duration.ofMillis(ttlMillis));
    }

    static void is(World world, String name, int count) throws InterruptedException {
        eventually(name + " " + count, () -> world.daemon.info(name) == count);
    }

    /** Awaits what was begun beside. */
    static <T extends Throwable> T failing(Class<T> kind, Future<?> begun) {
        var error = assertThrows(ExecutionException.class, begun::get);
        return assertThrows(kind, () -> {
            throw error.getCause();
        });
    }

    static void refused(String text, org.junit.jupiter.api.function.Executable call) {
        Refused error = assertThrows(Refused.class, call);
        assertTrue(error.getMessage().startsWith(text), error.getMessage());
    }

    static void lost(String text, org.junit.jupiter.api.function.Executable call) {
        LockLost error = assertThrows(LockLost.class, call);
        assertTrue(error.getMessage().contains(text), error.getMessage());
    }

    @ParameterizedTest
    @CsvSource({"0", "60000"})
    void severalAreGrantedAllOrNoneAndTokensGrow(int ttl) throws Exception {
        try (World world = new World()) {
            Locks locks = world.locks;
            long last = 0;
            for (int n = 0; n < 2; n++) {
                HeldAll held = locks.acquireAll(List.of("a", "b", "c"), all(10_000, ttl));
                assertEquals(List.of("a", "b", "c"), List.copyOf(held.tokens().keySet()));
                for (long token : held.tokens().values()) {
                    assertTrue(token > last);
                    last = token;
                }
                for (int wait : new int[] {0, 50}) {
                    assertThrows(NotGranted.class, () -> locks.acquireAll(List.of("d", "c"), all(wait, 0)));
                }
                locks.acquire("d", AT_ONCE).close();
                assertThrows(NotGranted.class, () -> locks.acquire("b", AT_ONCE));
                assertEquals(3, world.daemon.info("holds"));
                assertFalse(held.isLost());
                held.close();
                held.close(); // Nothing happens.
                world.daemon.settles();
            }
        }
    }

    @Test
    void severalAreTakenInAnyOrderWithoutADeadlock() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (World world = new World()) {
            List<AtomicInteger> inside = List.of(new AtomicInteger(), new AtomicInteger(), new AtomicInteger());
            AtomicInteger alone = new AtomicInteger();
            List<Callable<Void>> work = new ArrayList<>();
            for (int[] order : new int[][] {{0, 1}, {1, 0}, {1, 2}, {2, 0}}) {
                List<String> names = List.of("n" + order[0], "n" + order[1]);
                work.add(() -> {
                    for (int n = 0; n < 20; n++) {
                        try (HeldAll held = world.locks.acquireAll(names, all(60_000, 60_000))) {
                            for (int at : order) {
                                alone.addAndGet(inside.get(at).incrementAndGet() == 1 ? 1 : 0);
                            }
                            for (int at : order) {
                                inside.get(at).decrementAndGet();
                            }
                            held.check();
                        }
                    }
                    return null;
                });
            }
            for (Future<Void> done : threads.invokeAll(work)) {
                done.get();
            }
            assertEquals(160, alone.get());
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void everyLeaseIsRenewedAndAllAreLostWhenOneIs() throws Exception {
        try (World world = new World()) {
            List<HeldAll> told = new CopyOnWriteArrayList<>();
            HeldAll held = world.locks.acquireAll(List.of("a", "b"), all(0, 3000).onLost(told::add));
            eventually("renewals", () -> world.daemon.info("renewals") >= 6);
            held.check();
            assertEquals(0, world.daemon.info("expirations"));
            world.daemon.ask("FORCEUNLOCK b");
            eventually("told", () -> !told.isEmpty());
            lost("NOTOWNER", held::check);
            assertThrows(LockLost.class, held::close);
            assertEquals(List.of(held), told);
        }
    }

    @ParameterizedTest
    @CsvSource({"0", "60000"})
    void aReleaseReportsWhatWasTakenAwayAndGivesBackTheRest(int ttl) throws Exception {
        try (World world = new World()) {
            HeldAll held = world.locks.acquireAll(List.of("a", "b", "c"), all(0, ttl));
            world.daemon.ask("FORCEUNLOCK a");
            lost("NOT", held::close);
            world.daemon.settles();
        }
    }

    @Test
    void severalThatTheDaemonDoesNotTakeAreRefused() throws Exception {
        try (World world = new World()) {
            for (List<String> wrong : List.of(List.<String>of(), List.of("a", "a"), Collections.nCopies(65, "n"))) {
                refused("ERR LOCKALL takes", () -> world.locks.acquireAll(wrong, all(0, 0)));
            }
            assertThrows(IllegalArgumentException.class, () -> all(-1, 0));
            assertThrows(IllegalArgumentException.class, () -> all(0, 1));
            world.daemon.settles();
        }
    }

    @ParameterizedTest
    @CsvSource({"0", "60000"})
    void soManyGetInAndNoMore(int ttl) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try (World world = new World()) {
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger most = new AtomicInteger();
            CountDownLatch leave = new CountDownLatch(1);
            Wish wish = ttl == 0 ? LATE.of(3) : LATE.of(3).ttl(Duration.ofMillis(ttl));
            List<Future<Void>> begun = new ArrayList<>();
            for (int n = 0; n < 8; n++) {
                begun.add(threads.submit(() -> {
                    try (Held held = world.locks.acquire("seat", wish)) {
                        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                        leave.await();
                        inside.decrementAndGet();
                        held.check();
                    }
                    return null;
                }));
            }
            eventually("three are in", () -> inside.get() == 3);
            is(world, "waiters", 5);
            assertThrows(NotGranted.class, () -> world.locks.acquire("seat", AT_ONCE.of(3)));
            refused("BADLIMIT", () -> world.locks.acquire("seat", AT_ONCE.of(4)));
            leave.countDown();
            for (Future<Void> done : begun) {
                done.get();
            }
            assertEquals(3, most.get());
            world.daemon.settles();
        } finally {
            threads.shutdown();
        }
    }

    @ParameterizedTest
    @CsvSource({"stopped,0", "stopped,1500", "cut off,0", "cut off,1500", "killed,0", "killed,1500"})
    void aHolderOfSeveralIsToldThatTheyAreLost(String fault, int ttl) throws Exception {
        try (World world = new World()) {
            List<HeldAll> told = new CopyOnWriteArrayList<>();
            HeldAll held = world.locks.acquireAll(List.of("a", "b"), all(0, ttl).onLost(told::add));
            world.begin(fault);
            eventually("lost", () -> held.isLost() && !told.isEmpty());
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
    void nothingStaysBehindWhenSeveralAreNotAnswered(String fault, int ttl) throws Exception {
        try (World world = new World()) {
            world.begin(fault);
            assertThrows(NoAnswer.class, () -> world.locks.acquireAll(List.of("a", "b"), all(100, ttl)));
            world.end(fault);
            world.daemon.settles();
        }
    }

    @ParameterizedTest
    @CsvSource({"stopped,0", "stopped,600000", "cut off,0", "cut off,600000"})
    void whoGivesUpWaitingForSeveralLeavesAllLines(String fault, int ttl) throws Exception {
        ExecutorService threads = Executors.newSingleThreadExecutor();
        try (World world = new World()) {
            try (Held first = World.locks(world.daemon.port, 60, 0).acquire("b", SOON)) {
                var waits = threads.submit(() -> world.locks.acquireAll(List.of("a", "b"), all(1000, ttl)));
                is(world, "waiters", 2);
                world.begin(fault);
                failing(NoAnswer.class, waits);
                world.end(fault);
                is(world, "waiters", 0);
                world.locks.acquire("a", AT_ONCE).close();
                first.check();
            }
            world.daemon.settles();
        } finally {
            threads.shutdown();
        }
    }
}
