package jostle.lock;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.Refused;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/** A connection of one lock's own; what is not answered in time closes it. */
final class Line implements AutoCloseable {
    private final HostAndPort address;
    private final JedisClientConfig config;
    private Connection connection;
    private boolean closed;

    Line(HostAndPort address, JedisClientConfig config, Duration timeout) {
        int millis = millis(timeout);
        this.address = address;
        this.config = DefaultJedisClientConfig.builder()
                .from(config)
                .connectionTimeoutMillis(millis)
                .socketTimeoutMillis(millis)
                .build();
    }

    /** The reply; null is nil. Waits for at most {@code limit}, null: without limit. */
    Object ask(Duration limit, String... words) {
        try {
            Connection to = open();
            to.setSoTimeout(limit == null ? 0 : millis(limit));
            String[] rest = new String[words.length - 1];
            System.arraycopy(words, 1, rest, 0, rest.length);
            to.sendCommand(() -> words[0].getBytes(StandardCharsets.UTF_8), rest);
            return to.getOne();
        } catch (JedisDataException error) {
            throw new Refused(error.getMessage(), error);
        } catch (JedisException error) {
            close();
            throw new NoAnswer(words[0] + ": " + error.getMessage(), error);
        }
    }

    /** Opens it once: Jedis would connect again, and the lock of a closed connection is gone. */
    private synchronized Connection open() {
        if (closed || (connection != null && connection.isBroken())) {
            throw new JedisConnectionException("the connection is gone");
        }
        if (connection == null) {
            connection = new Connection(address, config);
        }
        return connection;
    }

    @Override
    public synchronized void close() {
        if (connection != null && !closed) {
            try {
                connection.forceDisconnect();
            } catch (IOException | JedisException error) {
                // It is as closed as it can be.
            }
        }
        closed = true;
    }

    /** Sockets count in whole milliseconds; 0 is for ever. */
    private static int millis(Duration time) {
        return (int) Math.max(1, Math.min(time.toMillis(), Integer.MAX_VALUE));
    }
}
