import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;

/** The loop of a lock that {@code jostle ... pipe:COMMAND} starts for each worker. */
final class Peer {
    /** One of the locks of a worker. */
    interface Lock {
        /** Waits for ever at -1 ms and not at all at 0; true if it was granted. */
        boolean acquire(boolean shared, long ms) throws Exception;

        void release() throws Exception;
    }

    /** Makes the lock of a key. */
    interface Join {
        Lock lock(int worker, int key) throws Exception;
    }

    /** Answers requests until they end. */
    static void serve(String capabilities, Join join) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        PrintStream output = new PrintStream(System.out, false);
        Lock[] locks = {};
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split(" ");
            String answer;
            try {
                switch (words[0]) {
                    case "A" -> {
                        boolean shared = words[2].equals("s");
                        long ms = Long.parseLong(words[3]);
                        boolean granted = locks[Integer.parseInt(words[1])].acquire(shared, ms);
                        answer = granted ? "G" : "R";
                    }
                    case "U" -> {
                        locks[Integer.parseInt(words[1])].release();
                        answer = "K";
                    }
                    default -> {
                        locks = new Lock[Integer.parseInt(words[3])];
                        for (int key = 0; key < locks.length; key++) {
                            locks[key] = join.lock(Integer.parseInt(words[2]), key);
                        }
                        answer = "READY " + capabilities;
                    }
                }
            } catch (Exception error) {
                answer = "E " + error.toString().replace('\n', ' ');
            }
            output.print(answer + "\n");
            output.flush();
        }
    }

    private Peer() {}
}
