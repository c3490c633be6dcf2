import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Lettuce as it is: RawLettuce PORT MEANS. See xtask/src/clients/raw.rs. */
public final class RawLettuce {
    interface Call {
        Object make() throws Exception;
    }

    record Word(String name) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return name.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String toString() {
            return name;
        }
    }

    static CommandArgs<String, String> args(String... words) {
        CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
        for (String word : words) args.add(word);
        return args;
    }

    static Long ask(StatefulRedisConnection<String, String> to, String name, String... rest) {
        return to.sync().dispatch(new Word(name), new IntegerOutput<>(StringCodec.UTF8), args(rest));
    }

    static RedisFuture<Long> begin(StatefulRedisConnection<String, String> to, String name, String... rest) {
        var command = new io.lettuce.core.protocol.AsyncCommand<>(
                new io.lettuce.core.protocol.Command<>(
                        new Word(name), new IntegerOutput<>(StringCodec.UTF8), args(rest)));
        to.dispatch(command);
        return command;
    }

    static String errorOf(Call call) throws Exception {
        try {
            return String.valueOf(call.make());
        } catch (RedisException error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    static void several(StatefulRedisConnection<String, String> to, String act) throws Exception {
        List<RedisFuture<Long>> replies = new ArrayList<>();
        boolean multi = act.equals("multi");
        if (multi) to.sync().multi();
        for (int n = 0; n < 10; n++) replies.add(begin(to, "LOCK", act + n, "TTL", "60000"));
        TransactionResult together = multi ? to.sync().exec() : null;
        int granted = 0;
        for (int n = 0; n < 10; n++) {
            long token = multi ? together.<Long>get(n) : replies.get(n).get(10, TimeUnit.SECONDS);
            granted += token > 0 ? 1 : 0;
            ask(to, "UNLOCK", act + n, Long.toString(token));
        }
        System.out.println(act + " " + granted);
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        System.out.println("version lettuce " + args[2]);
        RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", port));
        StatefulRedisConnection<String, String> to = client.connect();
        long token = ask(to, "LOCK", "job", "TTL", "60000");
        System.out.println("lock " + (token > 0 ? "granted" : token));
        System.out.println("try " + ask(to, "TRYLOCK", "job"));
        System.out.println("wait " + ask(to, "LOCK", "job", "TTL", "60000", "WAIT", "100"));
        System.out.println("wrong " + errorOf(() -> ask(to, "UNLOCK", "job", Long.toString(token + 1))));
        System.out.println("unlock " + ask(to, "UNLOCK", "job", Long.toString(token)));
        several(to, "pipeline");
        several(to, "multi");

        StatefulRedisConnection<String, String> hasty = client.connect();
        hasty.setTimeout(Duration.ofMillis(300));
        long sent = System.nanoTime();
        String said = errorOf(() -> ask(hasty, "LOCK", "busy", "TTL", "60000", "WAIT", "5000"));
        System.out.println("timeout " + (System.nanoTime() - sent) / 1_000_000 + " " + said);
        System.in.readAllBytes();
        System.exit(0);
    }
}
