import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's RLock: {@code java RedissonPairs HOST:PORT}. */
final class RedissonPairs {
    public static void main(String[] words) throws Exception {
        var config = new Config();
        // One thread takes locks: more connections would stay unused.
        config.useSingleServer().setAddress("redis://" + words[0])
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(2);
        RedissonClient client = Redisson.create(config);
        RLock lock = client.getLock("jostle-reference:0");
        Span.serve(() -> {
            lock.lock();
            lock.unlock();
        });
        client.shutdown(0, 2, TimeUnit.SECONDS);
    }

    private RedissonPairs() {}
}
