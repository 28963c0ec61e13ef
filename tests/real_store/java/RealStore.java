import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Opens the real store as a broker.conf says, -Dconf unless another is named; here is what differs among versions. */
final class RealStore {
    private static final int DISPATCH_POLL_MS = 5;
    private static final int GROUP_COMMIT_MS = 500; // RocksDB's queues get their units in groups

    private RealStore() {
    }

    static DefaultMessageStore open() throws IOException, ReflectiveOperationException {
        return open(Program.text("conf"));
    }

    /** One at a time: 5.x now and then fails when the first two are made at once. */
    static synchronized DefaultMessageStore open(String conf) throws IOException, ReflectiveOperationException {
        MessageArrivingListener nobodyWaits = (topic, queueId, offset, tagsCode, time, bitMap, properties) -> { };
        MessageStoreConfig config = config(conf);
        // 5.x wants the topics' configurations, too
        Object[] arguments = {config, stats(), nobodyWaits, broker(), topics(config)};
        Constructor<?> constructor = storeType(conf).getConstructors()[0];
        return (DefaultMessageStore) constructor.newInstance(Arrays.copyOf(arguments, constructor.getParameterCount()));
    }

    /** Of 5.2 and 5.3, a store with queues in RocksDB is a class of its own. */
    private static Class<?> storeType(String conf) throws IOException {
        if (isRocksDB(conf)) {
            try {
                return Class.forName("org.apache.rocketmq.store.RocksDBMessageStore");
            } catch (ClassNotFoundException newer) {
                return DefaultMessageStore.class;
            }
        }
        return DefaultMessageStore.class;
    }

    private static boolean isRocksDB(String conf) throws IOException {
        return properties(conf).getProperty("storeType", "").equals("defaultRocksDB");
    }

    /** RocksDB's queues are in no list before somebody asks for them: these are named `topic@queueId`, with commas. */
    static void askForQueues(DefaultMessageStore store, String conf) throws Exception {
        String asked = properties(conf).getProperty("askedQueues", "");
        if (!asked.isEmpty()) {
            Thread.sleep(GROUP_COMMIT_MS);
            for (String queue : asked.split(",")) {
                String[] place = queue.split("@");
                store.getConsumeQueue(place[0], Integer.parseInt(place[1]));
            }
        }
    }

    /** Starts a loaded store and waits until queues and index have what the log has. */
    static void start(DefaultMessageStore store) throws Exception {
        store.start();
        stopDelayedDelivery(store);
        awaitDispatch(store);
    }

    /** Waits until the log has all up to an offset: a store with a transient pool copies messages into it later. */
    static void awaitCommit(DefaultMessageStore store, long end) throws InterruptedException {
        while (store.getMaxPhyOffset() < end) {
            Thread.sleep(DISPATCH_POLL_MS);
        }
    }

    static void awaitDispatch(DefaultMessageStore store) throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(DISPATCH_POLL_MS);
        }
    }

    /** A store that is not started takes itself for shut down and gives no messages. */
    static void allowReading(DefaultMessageStore store) throws ReflectiveOperationException {
        Field shutdown = DefaultMessageStore.class.getDeclaredField("shutdown");
        shutdown.setAccessible(true);
        shutdown.setBoolean(store, false);
    }

    static MessageStoreConfig config() throws IOException {
        return config(Program.text("conf"));
    }

    private static MessageStoreConfig config(String conf) throws IOException {
        MessageStoreConfig config = new MessageStoreConfig();
        // as the broker does: a key that this version does not know is ignored
        MixAll.properties2Object(properties(conf), config);
        return config;
    }

    /** The keys and values of a broker.conf. */
    static Properties properties(String conf) throws IOException {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(conf))) {
            properties.load(in);
        }
        return properties;
    }

    /** config/topics.json as 5.x's broker reads it: it says which topics have batch consume queues. */
    private static Object topics(MessageStoreConfig config) throws IOException, ReflectiveOperationException {
        Path file = Paths.get(config.getStorePathRootDir(), "config", "topics.json");
        Class<?> type;
        try {
            type = Class.forName("org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper");
        } catch (ClassNotFoundException before5) {
            return new ConcurrentHashMap<>();
        }
        if (!Files.exists(file)) {
            return new ConcurrentHashMap<>();
        }
        Object topics;
        try {
            topics = RemotingSerializable.decode(Files.readAllBytes(file), type);
        } catch (RuntimeException noJson) { // a broker takes the .bak, or exits
            return new ConcurrentHashMap<>();
        }
        return topics == null ? new ConcurrentHashMap<>() : type.getMethod("getTopicConfigTable").invoke(topics);
    }

    private static BrokerConfig broker() {
        Properties properties = new Properties();
        properties.setProperty("autoDeleteUnusedStats", "false"); // of which a store alone has none
        BrokerConfig broker = new BrokerConfig();
        MixAll.properties2Object(properties, broker);
        return broker;
    }

    private static BrokerStatsManager stats() throws ReflectiveOperationException {
        Class<BrokerStatsManager> type = BrokerStatsManager.class;
        try {
            return type.getConstructor(String.class, boolean.class).newInstance("rmqctl", false);
        } catch (NoSuchMethodException before49) {
            return type.getConstructor(String.class).newInstance("rmqctl");
        }
    }

    /** In 4.x the store delivers due messages a second after its start: what is read would depend on the moment. In 5.x brokers do that. */
    private static void stopDelayedDelivery(DefaultMessageStore store) throws ReflectiveOperationException {
        Method getter;
        try {
            getter = DefaultMessageStore.class.getMethod("getScheduleMessageService");
        } catch (NoSuchMethodException inTheBroker) {
            return;
        }
        Object service = getter.invoke(store);
        service.getClass().getMethod("shutdown").invoke(service);
    }
}
