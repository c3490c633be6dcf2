import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** The loop of a lock that {@code jostle ... pipe:COMMAND} starts for each worker. */
final class Peer {
    /** One of the locks of a worker. */
    interface Lock {
        /** Waits for ever at -1 ms and not at all at 0; true if it was granted. */
        boolean acquire(boolean shared, long ms) throws Exception;

        void release() throws Exception;

        /** Prolongs the lease to so much from now on; false if the lock is no longer ours. */
        default boolean renew(long ms) throws Exception {
            throw new UnsupportedOperationException();
        }
    }

    /** Makes the lock of a key. */
    interface Join {
        Lock lock(int worker, int key) throws Exception;
    }

    private static Lock[] locks = {};
    private static Thread waiter;
    private static volatile String waiting = "";

    /**
     * Answers requests until they end. The capabilities also have the promise ("timeout
     * lease=2000"), "renew" if the locks have that, and "give-up" if a wait can be interrupted:
     * one thread then makes all calls.
     */
    static void serve(String capabilities, Join join) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        boolean givesUp = capabilities.contains("give-up");
        ExecutorService caller = Executors.newSingleThreadExecutor();
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split(" ");
            String number = Character.isDigit(line.charAt(0)) ? words[0] : "";
            String[] request = number.isEmpty() ? words : Arrays.copyOfRange(words, 1, words.length);
            if (request[0].equals("HELLO")) {
                say(greeted(request, capabilities, join));
            } else if (request[0].equals("X")) {
                giveUp(request[1]);
                say(number + " K");
            } else if (givesUp) {
                caller.execute(() -> answer(number, request));
            } else {
                answer(number, request);
            }
        }
        giveUp(waiting);
        caller.shutdown();
        caller.awaitTermination(400, TimeUnit.MILLISECONDS);
    }

    private static String greeted(String[] words, String capabilities, Join join) {
        try {
            locks = new Lock[Integer.parseInt(words[3])];
            for (int key = 0; key < locks.length; key++) {
                locks[key] = join.lock(Integer.parseInt(words[2]), key);
            }
            return "READY jostle/2 " + capabilities;
        } catch (Exception error) {
            return failed(error);
        }
    }

    private static synchronized void giveUp(String request) {
        if (!request.isEmpty() && request.equals(waiting)) {
            waiter.interrupt();
        }
    }

    private static synchronized void waits(String request) {
        waiter = Thread.currentThread();
        waiting = request;
        Thread.interrupted();
    }

    private static void answer(String number, String[] words) {
        String answer;
        try {
            Lock lock = locks[Integer.parseInt(words[1])];
            answer = switch (words[0]) {
                case "A" -> {
                    waits(number);
                    yield lock.acquire(words[2].equals("s"), Long.parseLong(words[3])) ? "G" : "R";
                }
                case "W" -> lock.renew(Long.parseLong(words[2])) ? "K" : "R";
                default -> {
                    lock.release();
                    yield "K";
                }
            };
        } catch (InterruptedException error) {
            answer = "R";
        } catch (Exception error) {
            answer = failed(error);
        }
        waits("");
        say(number.isEmpty() ? answer : number + " " + answer);
    }

    private static String failed(Exception error) {
        return "E " + error.toString().replace('\n', ' ');
    }

    private static synchronized void say(String line) {
        System.out.print(line + "\n");
        System.out.flush();
    }

    private Peer() {}
}
