import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/** What the programs have in common: one JSON document into the file -Dout, and an exit code. */
final class Program {
    /** 128 + SIGKILL, what a shell says of a broker that was killed. */
    static final int KILLED = 137;

    private static final int FAILED = 1;

    private Program() {
    }

    /** The body of a program: returns its document. */
    interface Body {
        Object run() throws Exception;
    }

    /** Runs the body and ends the process; a store's threads would keep it alive. */
    static void run(Body body) {
        try {
            report(body.run());
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(FAILED);
        }
        System.exit(0);
    }

    static void report(Object document) throws Exception {
        try (Writer out = Files.newBufferedWriter(Paths.get(text("out")), StandardCharsets.US_ASCII)) {
            Json.write(document, out);
        }
    }

    /** The value of -Dname, which the harness always gives. */
    static String text(String name) {
        String value = System.getProperty(name);
        if (value == null) {
            throw new IllegalArgumentException("-D" + name + " is missing");
        }
        return value;
    }

    static int number(String name) {
        return Integer.parseInt(text(name));
    }

    static boolean flag(String name) {
        return Boolean.parseBoolean(text(name));
    }

    static double secondsSince(long nanoTime) {
        return (System.nanoTime() - nanoTime) / 1e9;
    }
}
