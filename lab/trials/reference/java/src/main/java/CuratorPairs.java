import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator's InterProcessMutex: {@code java CuratorPairs HOST:PORT}. */
final class CuratorPairs {
    public static void main(String[] words) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                words[0], new ExponentialBackoffRetry(100, 3))) {
            client.start();
            var mutex = new InterProcessMutex(client, "/jostle-reference/0");
            Span.serve(() -> {
                mutex.acquire();
                mutex.release();
            });
        }
    }

    private CuratorPairs() {}
}
