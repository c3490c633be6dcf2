import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's InterProcessMutex: {@code java CuratorLocks HOST:PORT /PREFIX} locks /PREFIX/0,
 * /PREFIX/1, ... The session's end frees the lock of a worker that was killed. A lock is made by
 * requests that renew the session, so that its whole time-out is the lease.
 */
final class CuratorLocks implements Peer.Lock {
    private final InterProcessMutex mutex;

    private CuratorLocks(InterProcessMutex mutex) {
        this.mutex = mutex;
    }

    @Override
    public boolean acquire(boolean shared, long ms) throws Exception {
        if (ms < 0) {
            mutex.acquire();
            return true;
        }
        return mutex.acquire(ms, TimeUnit.MILLISECONDS);
    }

    @Override
    public void release() throws Exception {
        mutex.release();
    }

    public static void main(String[] words) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                words[0], 10_000, 5_000, new ExponentialBackoffRetry(100, 3))) {
            client.start();
            Peer.serve("timeout give-up fifo restart lease=10000", (worker, key) ->
                    new CuratorLocks(new InterProcessMutex(client, words[1] + "/" + key)));
        }
    }
}
