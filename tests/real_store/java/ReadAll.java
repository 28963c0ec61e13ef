import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Reads the store of each broker.conf that a line of -Dconfs names, as Read does; several at once: most of a start is waiting.
 * One that takes longer than -Dseconds is given up.
 */
public final class ReadAll {
    private static final int AT_ONCE = 6;

    private ReadAll() {
    }

    public static void main(String[] arguments) {
        Program.run(ReadAll::readAll);
    }

    /** In their order; what fails is a document that says so. */
    private static Object readAll() throws Exception {
        ThreadPoolExecutor threads = (ThreadPoolExecutor) Executors.newFixedThreadPool(AT_ONCE);
        List<Future<Object>> reading = new ArrayList<>();
        for (String conf : Files.readAllLines(Paths.get(Program.text("confs")), StandardCharsets.UTF_8)) {
            reading.add(threads.submit(() -> readOrFail(conf)));
        }
        List<Object> documents = new ArrayList<>();
        for (Future<Object> document : reading) {
            documents.add(awaited(document, threads));
        }
        return documents;
    }

    /** Those before it have ended, or keep a thread that another one stands in for: its turn has come. */
    private static Object awaited(Future<Object> document, ThreadPoolExecutor threads) throws Exception {
        try {
            return document.get(Program.number("seconds"), TimeUnit.SECONDS);
        } catch (TimeoutException hanging) {
            threads.setMaximumPoolSize(threads.getMaximumPoolSize() + 1);
            threads.setCorePoolSize(threads.getCorePoolSize() + 1);
            return Collections.singletonMap("error", "it hangs");
        }
    }

    private static Object readOrFail(String conf) {
        try {
            return Read.read(conf);
        } catch (Exception failure) {
            failure.printStackTrace();
            return Collections.singletonMap("error", failure.toString());
        }
    }
}
