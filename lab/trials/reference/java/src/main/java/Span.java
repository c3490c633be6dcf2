import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;

/**
 * The loop of a reference client of {@code cargo xtask peers --clients}: for each line
 * "MILLISECONDS" on standard input it takes and releases its lock for so long, and prints
 * "PAIRS CPU_NS NS". It ends with its input.
 */
final class Span {
    /** Takes the lock and releases it. */
    interface Pair {
        void make() throws Exception;
    }

    static void serve(Pair pair) throws Exception {
        var process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            long length = Long.parseLong(line) * 1_000_000;
            // The CPU time of all threads: the library's own, the collector's and the compiler's.
            long cpu = process.getProcessCpuTime();
            long begin = System.nanoTime();
            long taken = 0;
            long pairs = 0;
            while (taken < length) {
                pair.make();
                pairs++;
                taken = System.nanoTime() - begin;
            }
            System.out.println(pairs + " " + (process.getProcessCpuTime() - cpu) + " " + taken);
        }
    }

    private Span() {}
}
