package jostle.lock;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A jostled of the test's own ($JOSTLED), and a link to it that can be cut. */
final class Service {
    private Service() {}

    /** Waits for something that must come true soon. */
    static void eventually(String what, BooleanSupplier test) throws InterruptedException {
        long begun = System.nanoTime();
        while (!test.getAsBoolean()) {
            if (System.nanoTime() - begun > 20_000_000_000L) {
                throw new AssertionError("not within 20 s: " + what);
            }
            Thread.sleep(5);
        }
    }

    static void inBackground(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    static final class Daemon implements AutoCloseable {
        private final Process process;
        final int port;

        Daemon(String... flags) throws IOException {
            String program = System.getenv().getOrDefault("JOSTLED", "../../../target/debug/jostled");
            List<String> words = new ArrayList<>(List.of(program, "--data", "none", "--listen", "127.0.0.1:0"));
            words.addAll(List.of(flags));
            process = new ProcessBuilder(words).start();
            BufferedReader log = process.errorReader();
            Pattern listening = Pattern.compile("listening on 127\\.0\\.0\\.1:(\\d+)");
            int found = 0;
            String line = log.readLine();
            for (; line != null && !line.contains("ready"); line = log.readLine()) {
                Matcher matcher = listening.matcher(line);
                found = matcher.find() ? Integer.parseInt(matcher.group(1)) : found;
            }
            if (line == null) {
                throw new AssertionError(program + " did not start");
            }
            port = found;
            inBackground(() -> log.lines().forEach(rest -> {}));
        }

        void signal(String signal) throws IOException, InterruptedException {
            new ProcessBuilder("kill", signal, Long.toString(process.pid())).start().waitFor();
        }

        /** The reply to one command, as the text of RESP2. */
        String ask(String words) {
            try (Socket plain = new Socket(InetAddress.getLoopbackAddress(), port)) {
                plain.getOutputStream().write((words + "\r\nQUIT\r\n").getBytes(StandardCharsets.UTF_8));
                return new String(plain.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        /** A figure of INFO. */
        int info(String name) {
            Matcher matcher = Pattern.compile("(?m)^" + name + ":(\\d+)").matcher(ask("INFO"));
            if (!matcher.find()) {
                throw new AssertionError("INFO has no " + name);
            }
            return Integer.parseInt(matcher.group(1));
        }

        /** Waits until nobody holds a lock or waits for one. */
        void settles() throws InterruptedException {
            eventually("no holds", () -> info("holds") == 0);
            eventually("no waiters", () -> info("waiters") == 0);
        }

        @Override
        public void close() throws InterruptedException {
            process.destroyForcibly().waitFor();
        }
    }

    /** A way to the daemon that stops forwarding when it is cut, as a dead network does. */
    static final class Link implements AutoCloseable {
        private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        private final Daemon daemon;
        private boolean cut;
        private String swallow;
        private int opened;

        Link(Daemon daemon) throws IOException {
            this.daemon = daemon;
            inBackground(this::accept);
        }

        int port() {
            return listener.getLocalPort();
        }

        synchronized int opened() {
            return opened;
        }

        synchronized void set(boolean cut) {
            this.cut = cut;
            notifyAll();
        }

        /**
         * Once: forwards a request that has this text, and cuts its connection in place of the answer,
         * when there is one.
         */
        synchronized void loseAnswerTo(String request) {
            swallow = request;
        }

        private synchronized boolean swallows(byte[] bytes, int length) {
            String text = new String(bytes, 0, length, StandardCharsets.ISO_8859_1);
            boolean found = swallow != null && text.contains(swallow);
            swallow = found ? null : swallow;
            return found;
        }

        private synchronized void awaitWhole() {
            try {
                while (cut) {
                    wait();
                }
            } catch (InterruptedException interrupt) {
                throw new IllegalStateException(interrupt);
            }
        }

        private void accept() {
            try {
                while (true) {
                    Socket near = listener.accept();
                    synchronized (this) {
                        opened++;
                    }
                    inBackground(() -> carry(near));
                }
            } catch (IOException closed) {
                // The test is over.
            }
        }

        private void carry(Socket near) {
            awaitWhole();
            try {
                Socket far = new Socket(InetAddress.getLoopbackAddress(), daemon.port);
                AtomicBoolean loses = new AtomicBoolean();
                inBackground(() -> pump(far, near, loses));
                pump(near, far, loses);
            } catch (IOException error) {
                close(near);
            }
        }

        /** Forwards one direction until it ends; both end with it, as for a killed client. */
        private void pump(Socket from, Socket to, AtomicBoolean loses) {
            byte[] buffer = new byte[65536];
            try {
                InputStream input = from.getInputStream();
                OutputStream output = to.getOutputStream();
                for (int length = input.read(buffer); length >= 0; length = input.read(buffer)) {
                    awaitWhole();
                    if (loses.get()) {
                        break; // This is the answer.
                    }
                    if (swallows(buffer, length)) {
                        loses.set(true);
                    }
                    output.write(buffer, 0, length);
                }
            } catch (IOException error) {
                // Ended.
            }
            awaitWhole();
            close(from);
            close(to);
        }

        private static void close(Socket socket) {
            try {
                socket.close();
            } catch (IOException error) {
                // It is as closed as it can be.
            }
        }

        @Override
        public void close() throws IOException {
            set(false);
            listener.close();
        }
    }
}
