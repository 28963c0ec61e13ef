import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Starts a name server and a broker on a store, and a consumer for each line of the file -Dconsumers: group, topic, number of messages.
 *
 * A queue for which the broker has no offset of the group is read from its beginning.
 */
public final class Consume {
    private static final int POLL_MS = 20;
    private static final int LINGER_MS = 500;
    private static final long GIVE_UP_NS = TimeUnit.SECONDS.toNanos(60);

    private final String group;
    private final String topic;
    private final long count;
    private final Map<Integer, List<Long>> offsets = new TreeMap<>();
    private final Map<Integer, List<Long>> bodies = new TreeMap<>(); // the CRC-32 of each

    private Consume(String line) {
        String[] words = line.split(" ");
        this.group = words[0];
        this.topic = words[1];
        this.count = Long.parseLong(words[2]);
    }

    public static void main(String[] arguments) {
        Program.run(Consume::consume);
    }

    private static Object consume() throws Exception {
        RealBroker broker = RealBroker.start();
        List<Consume> asked = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(Program.text("consumers")), StandardCharsets.US_ASCII)) {
            Consume one = new Consume(line);
            one.start(broker.nameServer);
            asked.add(one);
        }
        long begin = System.nanoTime();
        for (Consume one : asked) {
            while (one.total() < one.count && System.nanoTime() - begin < GIVE_UP_NS) {
                Thread.sleep(POLL_MS);
            }
        }
        Thread.sleep(LINGER_MS);
        List<Object> rows = new ArrayList<>();
        for (Consume one : asked) {
            rows.addAll(one.rows());
        }
        return rows;
    }

    private void start(String nameServer) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group + " " + topic);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            note(context.getMessageQueue(), messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    /** Not of the group's retries: they come from another topic, and say the real one. */
    private synchronized void note(MessageQueue queue, List<MessageExt> messages) {
        if (queue.getTopic().equals(topic)) {
            for (MessageExt message : messages) {
                offsets.computeIfAbsent(queue.getQueueId(), id -> new ArrayList<>()).add(message.getQueueOffset());
                CRC32 crc = new CRC32();
                crc.update(message.getBody() == null ? new byte[0] : message.getBody());
                bodies.computeIfAbsent(queue.getQueueId(), id -> new ArrayList<>()).add(crc.getValue());
            }
        }
    }

    private synchronized long total() {
        return offsets.values().stream().mapToLong(List::size).sum();
    }

    private synchronized List<Object> rows() {
        List<Object> rows = new ArrayList<>();
        offsets.forEach((queueId, found) -> {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("group", group);
            row.put("topic", topic);
            row.put("queueId", queueId);
            row.put("offsets", found);
            row.put("bodies", bodies.get(queueId));
            rows.add(row);
        });
        return rows;
    }
}
