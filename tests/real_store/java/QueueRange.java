import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.DefaultMessageStore;

/** A queue of a store, and the queue offsets [min, max) that it has. */
final class QueueRange {
    final String topic;
    final int queueId;
    final long minOffset;
    final long maxOffset;

    private QueueRange(DefaultMessageStore store, String topic, int queueId) throws Exception {
        this.topic = topic;
        this.queueId = queueId;
        this.minOffset = store.getMinOffsetInQueue(topic, queueId);
        this.maxOffset = store.getMaxOffsetInQueue(topic, queueId);
    }

    /** Every queue of the store, by topic and queue id. */
    static List<QueueRange> all(DefaultMessageStore store) throws Exception {
        List<QueueRange> ranges = new ArrayList<>();
        // the type of the table's values differs among versions; only its keys matter here
        Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
        for (Map.Entry<String, ? extends Map<Integer, ?>> topic : new TreeMap<>(table).entrySet()) {
            for (int queueId : new TreeMap<>(topic.getValue()).keySet()) {
                ranges.add(new QueueRange(store, topic.getKey(), queueId));
            }
        }
        return ranges;
    }

    Map<String, Object> document() {
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("topic", topic);
        document.put("queueId", queueId);
        document.put("minOffset", minOffset);
        document.put("maxOffset", maxOffset);
        return document;
    }
}
