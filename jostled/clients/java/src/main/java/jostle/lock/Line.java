package jostle.lock;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import jdk.net.ExtendedSocketOptions;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.Refused;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.DefaultJedisSocketFactory;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/** A connection of one lock's own; what is not answered in time closes it. */
final class Line implements AutoCloseable {
    /** How long one of several addresses of the daemon's name may take to connect. */
    private static final int PER_ADDRESS_MILLIS = 1000;

    private final HostAndPort address;
    private final JedisClientConfig config;
    private final AtomicReference<InetAddress> silent;
    private Connection connection;
    private Socket socket;
    private boolean closed;

    /** {@code silent} is the address that was silent last. */
    Line(
            HostAndPort address,
            JedisClientConfig config,
            Duration timeout,
            AtomicReference<InetAddress> silent) {
        int millis = millis(timeout);
        this.address = address;
        this.silent = silent;
        boolean several = mayHaveSeveral(address);
        this.config = DefaultJedisClientConfig.builder()
                .from(config)
                .connectionTimeoutMillis(several ? Math.min(millis, PER_ADDRESS_MILLIS) : millis)
                .socketTimeoutMillis(millis)
                .build();
    }

    private static boolean mayHaveSeveral(HostAndPort name) {
        try {
            return InetAddress.getAllByName(name.getHost()).length > 1;
        } catch (UnknownHostException error) {
            return true; // The first request tells.
        }
    }

    /** The reply; null is nil. Waits for at most {@code limit}, null: without limit. */
    Object ask(Duration limit, List<String> words) {
        return askAll(limit, List.of(words)).get(0);
    }

    /** The replies to commands that are sent at once; Refused if one of them is. */
    List<Object> askAll(Duration limit, List<List<String>> commands) {
        String first = commands.get(0).get(0);
        long begun = System.nanoTime();
        List<Object> replies = new ArrayList<>();
        JedisDataException refused = null;
        try {
            Connection to = open();
            for (List<String> words : commands) {
                String[] rest = words.subList(1, words.size()).toArray(String[]::new);
                to.sendCommand(() -> words.get(0).getBytes(StandardCharsets.UTF_8), rest);
            }
            for (int n = 0; n < commands.size(); n++) {
                to.setSoTimeout(limit == null ? 0 : millis(limit.minusNanos(System.nanoTime() - begun)));
                try {
                    replies.add(to.getOne());
                } catch (JedisDataException error) {
                    refused = refused == null ? error : refused; // The others are to be read, too.
                }
            }
        } catch (JedisDataException error) {
            refused = error; // It is about the connection.
        } catch (JedisException error) {
            if (socket != null) {
                silent.set(socket.getInetAddress());
            }
            close();
            throw new NoAnswer(first + ": " + error.getMessage(), error);
        }
        if (refused != null) {
            throw new Refused(inOurTerms(refused.getMessage()), refused);
        }
        return replies;
    }

    /** Names the settings of Jedis where a refusal names commands of the protocol. */
    private static String inOurTerms(String refusal) {
        return refusal != null && refusal.startsWith("NOAUTH")
                ? "NOAUTH give user and password: those of JedisClientConfig"
                : refusal;
    }

    /** Opens it once: Jedis would connect again, and the lock of a closed connection is gone. */
    private synchronized Connection open() {
        if (closed || (connection != null && connection.isBroken())) {
            throw new JedisConnectionException("the connection is gone");
        }
        if (connection == null) {
            connection = new Connection(() -> socket = connect(), config);
        }
        return connection;
    }

    /**
     * Tries the addresses of the name. Over TLS Jedis does, which needs the name, and in any order.
     */
    private Socket connect() {
        if (config.isSsl() || config.getSslOptions() != null) {
            return kept(new DefaultJedisSocketFactory(address, config).createSocket());
        }
        JedisConnectionException why = null;
        for (InetAddress one : addresses()) {
            HostAndPort to = new HostAndPort(one.getHostAddress(), address.getPort());
            try {
                return kept(new DefaultJedisSocketFactory(to, config).createSocket());
            } catch (JedisConnectionException error) {
                why = error;
                if (Stream.of(error.getSuppressed()).anyMatch(SocketTimeoutException.class::isInstance)) {
                    silent.set(one);
                }
            }
        }
        throw why;
    }

    /** Those of the name: the one that was silent last is the last. */
    private List<InetAddress> addresses() {
        try {
            List<InetAddress> found = new ArrayList<>(List.of(InetAddress.getAllByName(address.getHost())));
            found.sort(Comparator.comparing(one -> one.equals(silent.get())));
            return found;
        } catch (UnknownHostException error) {
            throw new JedisConnectionException(error);
        }
    }

    private static Socket kept(Socket made) {
        try {
            // The system ends a connection whose host is gone for 4 s.
            made.setOption(ExtendedSocketOptions.TCP_KEEPIDLE, 1);
            made.setOption(ExtendedSocketOptions.TCP_KEEPINTERVAL, 1);
            made.setOption(ExtendedSocketOptions.TCP_KEEPCOUNT, 3);
        } catch (IOException | UnsupportedOperationException error) {
            // Some systems have no such settings.
        }
        return made;
    }

    /** Whether the other side has ended it, while nothing is asked. */
    synchronized boolean hasEnded() {
        if (closed || connection == null) {
            return false;
        }
        try {
            socket.setSoTimeout(1);
            socket.getInputStream().read(); // The end, or a byte that nobody has asked for.
            return true;
        } catch (SocketTimeoutException nothing) {
            return false;
        } catch (IOException error) {
            return true;
        }
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
