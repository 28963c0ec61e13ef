import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Loads the stores whose broker.conf's -Dconfs lists, one after the other, and lets each delete files as it would every 10 seconds.
 *
 * Keys in a broker.conf that are ours: cleanRounds, cleanManually, cleanForciblyRatio for a system property that a store reads when it is
 * made, cleanHoldsFirst (true) to hold the log's first file as a reader does, cleanRetainedTopics (with commas) for cleanUnusedTopic at the
 * end.
 */
public final class Clean {
    private static final String FORCE_RATIO = "rocketmq.broker.diskSpaceCleanForciblyRatio";

    private Clean() {
    }

    public static void main(String[] arguments) {
        Program.run(Clean::cleanAll);
    }

    private static Object cleanAll() throws Exception {
        List<Object> documents = new ArrayList<>();
        for (String conf : Files.readAllLines(Paths.get(Program.text("confs")))) {
            documents.add(clean(conf));
        }
        return documents;
    }

    private static Object clean(String conf) throws Exception {
        Properties ours = properties(Paths.get(conf));
        String ratio = ours.getProperty("cleanForciblyRatio");
        if (ratio == null) {
            System.clearProperty(FORCE_RATIO);
        } else {
            System.setProperty(FORCE_RATIO, ratio);
        }
        DefaultMessageStore store = RealStore.open(conf);
        boolean loaded = store.load();
        if (loaded) {
            if (Boolean.parseBoolean(ours.getProperty("cleanHoldsFirst"))) {
                store.selectOneMessageByOffset(store.getMinPhyOffset());
            }
            if (Boolean.parseBoolean(ours.getProperty("cleanManually"))) {
                store.executeDeleteFilesManually();
            }
            for (int round = Integer.parseInt(ours.getProperty("cleanRounds")); round > 0; round--) {
                periodically(store, "cleanFilesPeriodically");
                periodically(store, "cleanQueueFilesPeriodically");
            }
            String retained = ours.getProperty("cleanRetainedTopics");
            if (retained != null) {
                store.cleanUnusedTopic(new HashSet<>(Arrays.asList(retained.split(","))));
            }
        }
        return document(store, loaded);
    }

    /** 5.x has a second method, for queues and index; in 4.x the first cleans all. */
    private static void periodically(DefaultMessageStore store, String name) throws ReflectiveOperationException {
        Method method;
        try {
            method = DefaultMessageStore.class.getDeclaredMethod(name);
        } catch (NoSuchMethodException before5) {
            return;
        }
        method.setAccessible(true);
        method.invoke(store);
    }

    /** 5.x bounds what it is told; before, a property is taken as it is. */
    private static void putLevel(Map<String, Object> document, String key, DefaultMessageStore store, String getter)
        throws ReflectiveOperationException {
        Field field = DefaultMessageStore.class.getDeclaredField("cleanCommitLogService");
        field.setAccessible(true);
        Object service = field.get(store);
        Method method;
        try {
            method = service.getClass().getDeclaredMethod(getter);
        } catch (NoSuchMethodException before5) {
            return;
        }
        method.setAccessible(true);
        document.put(key, method.invoke(service));
    }

    private static Properties properties(Path path) throws IOException {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(path)) {
            properties.load(in);
        }
        return properties;
    }

    private static Object document(DefaultMessageStore store, boolean loaded) throws Exception {
        List<Object> queues = new ArrayList<>();
        for (QueueRange range : QueueRange.all(store)) {
            queues.add(range.document());
        }
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("loaded", loaded);
        document.put("minPhyOffset", store.getMinPhyOffset());
        document.put("queues", queues);
        putLevel(document, "forceLevel", store, "getDiskSpaceCleanForciblyRatio");
        putLevel(document, "warningLevel", store, "getDiskSpaceWarningLevelRatio");
        return document;
    }
}
