import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's locks: {@code java RedissonLocks redis://HOST:PORT PREFIX [LEASE]} locks PREFIX:0,
 * PREFIX:1, ... Its watchdog's lease of so many seconds (30) frees the lock of a worker that was
 * killed; the watchdog itself renews it.
 */
final class RedissonLocks implements Peer.Lock {
    private final RLock lock;

    private RedissonLocks(RLock lock) {
        this.lock = lock;
    }

    @Override
    public boolean acquire(boolean shared, long ms) throws Exception {
        if (ms < 0) {
            lock.lock();
            return true;
        }
        return ms == 0 ? lock.tryLock() : lock.tryLock(ms, TimeUnit.MILLISECONDS);
    }

    @Override
    public void release() {
        lock.unlock();
    }

    public static void main(String[] words) throws Exception {
        long lease = words.length > 2 ? (long) (1_000 * Double.parseDouble(words[2])) : 30_000;
        Config config = new Config();
        config.setLockWatchdogTimeout(lease);
        config.useSingleServer().setAddress(words[0]).setPassword(System.getenv("REDISCLI_AUTH"))
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(2);
        RedissonClient client = Redisson.create(config);
        Peer.serve("timeout lease=" + lease, (worker, key) -> new RedissonLocks(client.getLock(words[1] + ":" + key)));
        client.shutdown(0, 2, TimeUnit.SECONDS);
    }
}
