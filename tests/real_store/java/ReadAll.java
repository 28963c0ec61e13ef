import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Reads the store of each broker.conf that a line of -Dconfs names, as Read does; several at once: most of a start is waiting. */
public final class ReadAll {
    private static final int AT_ONCE = 6;

    private ReadAll() {
    }

    public static void main(String[] arguments) {
        Program.run(ReadAll::readAll);
    }

    /** In their order; what fails is a document that says so. */
    private static Object readAll() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<Object>> reading = new ArrayList<>();
        for (String conf : Files.readAllLines(Paths.get(Program.text("confs")), StandardCharsets.UTF_8)) {
            reading.add(threads.submit(() -> readOrFail(conf)));
        }
        List<Object> documents = new ArrayList<>();
        for (Future<Object> document : reading) {
            documents.add(document.get());
        }
        return documents;
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
