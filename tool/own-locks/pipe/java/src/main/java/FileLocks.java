import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** FileChannel's locks: {@code java FileLocks STEM} locks the files STEM.0, STEM.1, ... */
final class FileLocks implements Peer.Lock {
    private final FileChannel channel;
    private FileLock held;

    private FileLocks(Path path) throws Exception {
        channel = FileChannel.open(path, StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    @Override
    public boolean acquire(boolean shared, long ms) throws Exception {
        if (ms < 0) {
            held = channel.lock(0, Long.MAX_VALUE, shared);
            return true;
        }
        long until = System.nanoTime() + ms * 1_000_000;
        while ((held = channel.tryLock(0, Long.MAX_VALUE, shared)) == null) {
            if (System.nanoTime() - until >= 0) {
                return false;
            }
            Thread.sleep(1);
        }
        return true;
    }

    @Override
    public void release() throws Exception {
        held.release();
    }

    public static void main(String[] words) throws Exception {
        Peer.serve("shared timeout by=process",
                (worker, key) -> new FileLocks(Path.of(words[0] + "." + key)));
    }
}
