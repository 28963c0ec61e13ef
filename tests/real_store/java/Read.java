import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Loads a store, with -Dstart=true starts it too, and says everything that consumers and queries get from it. */
public final class Read {
    private Read() {
    }

    public static void main(String[] arguments) {
        Program.run(() -> read(Program.text("conf")));
    }

    static Object read(String conf) throws Exception {
        DefaultMessageStore store = RealStore.open(conf);
        boolean loaded = store.load();
        // a broker whose store does not load exits; 4.x would hang in start()
        boolean started = loaded && Program.flag("start");
        if (started) {
            RealStore.start(store);
        } else {
            RealStore.allowReading(store);
        }
        RealStore.askForQueues(store, conf);
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("load", loaded);
        document.put("minPhyOffset", store.getMinPhyOffset());
        document.put("maxPhyOffset", store.getMaxPhyOffset());
        putContent(store, document);
        if (started) {
            store.shutdown();
        }
        return document;
    }

    private static void putContent(DefaultMessageStore store, Map<String, Object> document) throws Exception {
        List<Object> queues = new ArrayList<>();
        List<Object> messages = new ArrayList<>();
        TreeSet<String> topics = new TreeSet<>();
        KeyQueries keyQueries = new KeyQueries(Program.number("keyMessages"));
        for (QueueRange range : QueueRange.all(store)) {
            List<MessageExt> consumed = new ArrayList<>();
            Map<String, Object> queue = new QueueReader(store, range).read(consumed);
            if (Program.flag("timeLookUps")) {
                queue.put("offsetsByTime", TimeLookUps.ask(store, range, consumed));
            }
            queues.add(queue);
            topics.add(range.topic);
            for (MessageExt message : consumed) {
                messages.add(MessageDocument.of(message, range.topic, range.queueId));
                keyQueries.add(message);
            }
        }
        document.put("queues", queues);
        document.put("messages", messages);
        document.put("keyQueries", keyQueries.ask(store, topics));
    }
}
