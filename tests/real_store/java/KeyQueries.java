import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;

/** Collects the keys of messages, and asks the store for each under every topic: the index has messages, too, that no queue has. */
final class KeyQueries {
    private static final int MAX_MESSAGES = 64;

    private final TreeSet<String> keys = new TreeSet<>();
    private int messagesLeft;

    KeyQueries(int messages) {
        this.messagesLeft = messages;
    }

    /** Takes the keys of a message that has any, as long as messages are wanted. */
    void add(MessageExt message) {
        List<String> found = keysOf(message);
        if (messagesLeft > 0 && !found.isEmpty()) {
            messagesLeft--;
            keys.addAll(found);
        }
    }

    /** A row for each key and topic that the store finds anything by. */
    List<Object> ask(DefaultMessageStore store, Collection<String> topics) {
        List<Object> answers = new ArrayList<>();
        for (String key : keys) {
            for (String topic : topics) {
                TreeSet<Long> physicalOffsets = query(store, topic, key);
                if (!physicalOffsets.isEmpty()) {
                    answers.add(answer(topic, key, physicalOffsets));
                }
            }
        }
        return answers;
    }

    private static List<String> keysOf(MessageExt message) {
        List<String> keys = new ArrayList<>();
        if (message.getKeys() != null) {
            keys.addAll(Arrays.asList(message.getKeys().split(MessageConst.KEY_SEPARATOR)));
        }
        String uniqueKey = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (uniqueKey != null) {
            keys.add(uniqueKey);
        }
        return keys;
    }

    private static TreeSet<Long> query(DefaultMessageStore store, String topic, String key) {
        TreeSet<Long> physicalOffsets = new TreeSet<>();
        QueryMessageResult result = store.queryMessage(topic, key, MAX_MESSAGES, 0, Long.MAX_VALUE);
        for (ByteBuffer record : result.getMessageBufferList()) {
            physicalOffsets.add(MessageDecoder.decode(record.duplicate(), false, false).getCommitLogOffset());
        }
        result.release();
        return physicalOffsets;
    }

    private static Map<String, Object> answer(String topic, String key, TreeSet<Long> physicalOffsets) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", topic);
        answer.put("key", key);
        answer.put("max", MAX_MESSAGES);
        answer.put("physicalOffsets", physicalOffsets);
        return answer;
    }
}
