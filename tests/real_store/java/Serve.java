import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/** Starts a name server and a broker on a store and consumes the topics of the file -Dtopics, a line each: topic, space, number of messages. */
public final class Serve {
    private Serve() {
    }

    public static void main(String[] arguments) {
        Program.run(Serve::serve);
    }

    private static Object serve() throws Exception {
        WireReader reader = new WireReader(RealBroker.start());
        for (String line : Files.readAllLines(Paths.get(Program.text("topics")), StandardCharsets.US_ASCII)) {
            String[] words = line.split(" ");
            reader.read(words[0], Long.parseLong(words[1]));
        }
        return reader.document();
    }
}
