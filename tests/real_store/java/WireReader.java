import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a client gets from a broker, all over the wire: queues, messages, and messages by id, by key and by time. */
final class WireReader {
    private static final int MESSAGES_PER_PULL = 32;
    private static final int MESSAGES_PER_QUERY = 64;
    private static final int KEYED_MESSAGES = 20;
    private static final int POLL_MS = 50;
    private static final long GIVE_UP_NS = TimeUnit.SECONDS.toNanos(60);
    private static final String LMQ_PREFIX = "%LMQ%";

    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("rmqctl");
    private final InetSocketAddress broker;
    private final List<Object> queues = new ArrayList<>();
    private final List<Object> messages = new ArrayList<>();
    private final List<Object> byId = new ArrayList<>();
    private final List<Object> byKey = new ArrayList<>();

    WireReader(RealBroker broker) throws MQClientException {
        this.broker = broker.address;
        consumer.setNamesrvAddr(broker.nameServer);
        consumer.start();
    }

    Map<String, Object> document() {
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("queues", queues);
        document.put("messages", messages);
        document.put("byId", byId);
        document.put("byKey", byKey);
        return document;
    }

    /** Reads a topic as soon as its queues have `count` messages: the broker may still have to deliver some. */
    void read(String topic, long count) throws Exception {
        List<MessageExt> consumed = new ArrayList<>();
        for (MessageQueue queue : await(topic, count)) {
            consumed.addAll(consume(queue));
        }
        lookUpById(topic, consumed);
        lookUpByKey(topic, consumed);
    }

    private List<MessageQueue> await(String topic, long count) throws Exception {
        long begin = System.nanoTime();
        while (true) {
            List<MessageQueue> found = queues(topic);
            long total = 0;
            for (MessageQueue queue : found) {
                total += consumer.maxOffset(queue) - consumer.minOffset(queue);
            }
            if (total >= count && !found.isEmpty()) {
                return found;
            }
            if (System.nanoTime() - begin > GIVE_UP_NS) {
                throw new IllegalStateException(topic + ": " + total + " of " + count + " messages in " + found);
            }
            Thread.sleep(POLL_MS);
        }
    }

    /** As the name server knows them; none where it does not know the topic yet. Of LMQ it knows none: a client gets there by others. */
    private List<MessageQueue> queues(String topic) {
        if (topic.startsWith(LMQ_PREFIX)) {
            return Collections.singletonList(new MessageQueue(topic, RealBroker.NAME, 0));
        }
        try {
            return new ArrayList<>(new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic)));
        } catch (MQClientException notYetRegistered) {
            return Collections.emptyList();
        }
    }

    private List<MessageExt> consume(MessageQueue queue) throws Exception {
        long min = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        List<MessageExt> found = new ArrayList<>();
        long offset = min;
        while (offset < max) {
            PullResult pulled = consumer.pull(queue, "*", offset, MESSAGES_PER_PULL);
            if (pulled.getPullStatus() == PullStatus.FOUND) {
                found.addAll(pulled.getMsgFoundList());
            }
            if (pulled.getNextBeginOffset() <= offset) {
                break;
            }
            offset = pulled.getNextBeginOffset();
        }
        for (MessageExt message : found) {
            // the client adds them; they are not the message's
            message.getProperties().keySet().removeAll(Arrays.asList(MessageConst.PROPERTY_MIN_OFFSET, MessageConst.PROPERTY_MAX_OFFSET));
            messages.add(MessageDocument.of(message, queue.getTopic(), queue.getQueueId()));
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", queue.getTopic());
        row.put("queueId", queue.getQueueId());
        row.put("minOffset", min);
        row.put("maxOffset", max);
        row.put("offsetsByTime", offsetsByTime(queue, found));
        queues.add(row);
        return found;
    }

    /** Pairs of a time and an offset, for the store times of the first and the last message. */
    private List<Object> offsetsByTime(MessageQueue queue, List<MessageExt> found) throws MQClientException {
        List<Object> offsets = new ArrayList<>();
        for (MessageExt message : found.isEmpty() ? found : Arrays.asList(found.get(0), found.get(found.size() - 1))) {
            long time = message.getStoreTimestamp();
            offsets.add(Arrays.asList(time, consumer.searchOffset(queue, time)));
        }
        return offsets;
    }

    /** A client sends a message id to the host in it; so these are asked of this broker, whatever host stored the messages. */
    private void lookUpById(String topic, List<MessageExt> consumed) throws Exception {
        for (MessageExt message : consumed) {
            String id = MessageDecoder.createMessageId(broker, message.getCommitLogOffset());
            byId.add(MessageDocument.of(consumer.viewMessage(topic, id), topic, message.getQueueId()));
        }
    }

    private void lookUpByKey(String topic, List<MessageExt> consumed) throws Exception {
        TreeSet<String> keys = new TreeSet<>();
        for (MessageExt message : consumed.subList(0, Math.min(KEYED_MESSAGES, consumed.size()))) {
            if (message.getKeys() != null && topic.equals(message.getTopic())) {
                keys.addAll(Arrays.asList(message.getKeys().split(MessageConst.KEY_SEPARATOR)));
            }
        }
        for (String key : keys) {
            TreeSet<Long> physicalOffsets = new TreeSet<>();
            for (MessageExt message : consumer.queryMessage(topic, key, MESSAGES_PER_QUERY, 0, Long.MAX_VALUE).getMessageList()) {
                physicalOffsets.add(message.getCommitLogOffset());
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", topic);
            row.put("key", key);
            row.put("max", MESSAGES_PER_QUERY);
            row.put("physicalOffsets", physicalOffsets);
            byKey.add(row);
        }
    }
}
