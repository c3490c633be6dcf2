import java.net.URI;
import java.net.http.*;
import java.util.concurrent.atomic.AtomicLong;

/** A load generator: Client PORT CONNECTIONS SECONDS, with a thread for each connection. */
public class Client {
    public static void main(String[] words) throws Exception {
        int connections = Integer.parseInt(words[1]);
        long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(words[2]));
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String host = System.getenv().getOrDefault("CASE_HOST", "127.0.0.1");
        URI place = URI.create("http://" + host + ":" + words[0] + "/");
        AtomicLong done = new AtomicLong();
        Thread[] threads = new Thread[connections];
        for (int nth = 0; nth < connections; nth++) {
            threads[nth] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        client.send(HttpRequest.newBuilder(place).build(), HttpResponse.BodyHandlers.discarding());
                        done.incrementAndGet();
                    } catch (Exception lost) {
                        Thread.yield();
                    }
                }
            });
            threads[nth].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(done + " requests");
    }
}
