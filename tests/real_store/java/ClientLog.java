import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;

/** What clients did and were told, in order. Several threads write. */
final class ClientLog {
    private static final long GIVE_UP_NS = TimeUnit.SECONDS.toNanos(60);
    private static final int POLL_MS = 50;

    private final List<Object> events = new ArrayList<>();

    /** A state of the broker that the clients wait for. */
    interface Condition {
        boolean holds() throws Exception;
    }

    /** Adds an event with names and values in turn; a value that is null is left out. */
    synchronized void add(String event, Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("event", event);
        row.put("time", System.currentTimeMillis());
        for (int i = 0; i < namesAndValues.length; i += 2) {
            if (namesAndValues[i + 1] != null) {
                row.put((String) namesAndValues[i], namesAndValues[i + 1]);
            }
        }
        events.add(row);
    }

    /** Adds what the broker answered to a message that was sent: of a batch, to each one of it. Of a half message it tells no id. */
    void sent(String kind, Message message, String offsetMsgId, long queueOffset, SendResult result, Object... more) throws Exception {
        Object[] row = {
            "kind", kind,
            "topic", message.getTopic(),
            "message", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
            "keys", message.getKeys(),
            "tags", message.getTags(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", queueOffset,
            "physicalOffset", offsetMsgId == null ? null : MessageDecoder.decodeMessageId(offsetMsgId).getOffset(),
        };
        Object[] all = new Object[row.length + more.length];
        System.arraycopy(row, 0, all, 0, row.length);
        System.arraycopy(more, 0, all, row.length, more.length);
        add("sent", all);
    }

    synchronized List<Object> events() {
        return new ArrayList<>(events);
    }

    static void await(String what, Condition condition) throws Exception {
        long begin = System.nanoTime();
        while (!condition.holds()) {
            if (System.nanoTime() - begin > GIVE_UP_NS) {
                throw new IllegalStateException("waited in vain: " + what);
            }
            Thread.sleep(POLL_MS);
        }
    }
}
