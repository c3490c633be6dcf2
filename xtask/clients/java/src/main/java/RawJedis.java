import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;

/** Jedis as it is: RawJedis PORT MEANS. See xtask/src/clients/raw.rs. */
public final class RawJedis {
    interface Call {
        Object make() throws Exception;
    }

    static ProtocolCommand word(String name) {
        return () -> name.getBytes(StandardCharsets.UTF_8);
    }

    static Object ask(RedisClient client, String name, String... rest) {
        return client.sendCommand(word(name), rest);
    }

    static String errorOf(Call call) throws Exception {
        try {
            return String.valueOf(call.make());
        } catch (JedisException error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    static CommandObject<Object> lock(String name) {
        CommandArguments words = new CommandArguments(word("LOCK")).add(name).add("TTL").add("60000");
        return new CommandObject<>(words, BuilderFactory.RAW_OBJECT);
    }

    static RedisClient client(int port, int millis) {
        return RedisClient.builder()
                .hostAndPort("127.0.0.1", port)
                .clientConfig(DefaultJedisClientConfig.builder().socketTimeoutMillis(millis).build())
                .build();
    }

    static void several(RedisClient client, String act) {
        List<Response<Object>> replies = new ArrayList<>();
        if (act.equals("multi")) {
            try (var pipe = client.multi()) {
                for (int n = 0; n < 10; n++) replies.add(pipe.executeCommand(lock(act + n)));
                pipe.exec();
            }
        } else {
            try (var pipe = client.pipelined()) {
                for (int n = 0; n < 10; n++) replies.add(pipe.executeCommand(lock(act + n)));
                pipe.sync();
            }
        }
        int granted = 0;
        for (int n = 0; n < 10; n++) {
            long token = (Long) replies.get(n).get();
            granted += token > 0 ? 1 : 0;
            ask(client, "UNLOCK", act + n, Long.toString(token));
        }
        System.out.println(act + " " + granted);
    }

    /** Renews a lease for as long as it runs; see groups.py. */
    static void follow(RedisClient client) throws Exception {
        String token = String.valueOf(ask(client, "LOCK", "job", "TTL", "20000"));
        System.out.println("token " + token);
        for (String last = ""; ; Thread.sleep(100)) {
            long sent = System.nanoTime();
            String said = errorOf(() -> ask(client, "RENEW", "job", token, "TTL", "20000"));
            long ms = (System.nanoTime() - sent) / 1_000_000;
            if (!said.equals(last) || ms > 300) {
                System.out.println(ms + " " + said);
            }
            last = said;
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        if (args[1].equals("group")) {
            follow(RedisClient.builder().hostAndPort("locks", port).build());
        }
        System.out.println("version jedis " + args[2]);
        RedisClient client = client(port, 10_000);
        long token = (Long) ask(client, "LOCK", "job", "TTL", "60000");
        System.out.println("lock " + (token > 0 ? "granted" : token));
        System.out.println("try " + ask(client, "TRYLOCK", "job"));
        System.out.println("wait " + ask(client, "LOCK", "job", "TTL", "60000", "WAIT", "100"));
        System.out.println("wrong " + errorOf(() -> ask(client, "UNLOCK", "job", Long.toString(token + 1))));
        System.out.println("unlock " + ask(client, "UNLOCK", "job", Long.toString(token)));
        several(client, "pipeline");
        several(client, "multi");

        RedisClient hasty = client(port, 300);
        long sent = System.nanoTime();
        String said = errorOf(() -> ask(hasty, "LOCK", "busy", "TTL", "60000", "WAIT", "5000"));
        System.out.println("timeout " + (System.nanoTime() - sent) / 1_000_000 + " " + said);
        System.in.readAllBytes();
        System.exit(0);
    }
}
