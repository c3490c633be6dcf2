import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** A server: Pool PORT N MS, N threads, each of which takes so long for a request. */
public class Pool {
    public static void main(String[] words) throws Exception {
        int[] numbers = java.util.Arrays.stream(words).mapToInt(Integer::parseInt).toArray();
        String host = System.getenv().getOrDefault("CASE_HOST", "127.0.0.1");
        HttpServer server = HttpServer.create(new InetSocketAddress(host, numbers[0]), 1024);
        server.setExecutor(Executors.newFixedThreadPool(numbers[1]));
        server.createContext("/", exchange -> {
            try {
                Thread.sleep(numbers[2]);
            } catch (InterruptedException ended) {
                return;
            }
            exchange.sendResponseHeaders(200, 6);
            exchange.getResponseBody().write("hello\n".getBytes());
            exchange.close();
        });
        server.start();
    }
}
