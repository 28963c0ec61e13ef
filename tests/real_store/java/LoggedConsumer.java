import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A consumer group with message trace: logs each message that it is given, and in the end how far it came. */
final class LoggedConsumer {
    private static final int RETRIES = 2;
    private static final int SUSPENDED_MS = 1000;

    final AtomicInteger consumed = new AtomicInteger();
    private final ClientLog log;
    private final String group;
    private final DefaultMQPushConsumer consumer;
    private final List<String> topics = new ArrayList<>();

    LoggedConsumer(RealBroker broker, ClientLog log, String group) {
        this.log = log;
        this.group = group;
        this.consumer = new DefaultMQPushConsumer(group, true, null);
        consumer.setNamesrvAddr(broker.nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(RETRIES);
        topics.add(MixAll.RETRY_GROUP_TOPIC_PREFIX + group);
    }

    void subscribe(String topic, String tags) throws MQClientException {
        consumer.subscribe(topic, tags);
        topics.add(topic);
    }

    /** Consumes all; a message that `fails` is sent back to the broker, which gives it out again or takes it for dead. */
    void start(Predicate<MessageExt> fails) throws MQClientException {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean later = messages.stream().anyMatch(fails);
            messages.forEach(message -> log("consumed", message, context.getMessageQueue(), later ? "later" : "success"));
            consumed.addAndGet(messages.size());
            return later ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    /** Consumes so many messages of each queue, in their order, and no more. */
    void startUpTo(int limit) throws MQClientException {
        Map<MessageQueue, AtomicInteger> counts = new ConcurrentHashMap<>();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            AtomicInteger count = counts.computeIfAbsent(context.getMessageQueue(), queue -> new AtomicInteger());
            if (count.get() >= limit) {
                messages.forEach(message -> log("suspended", message, context.getMessageQueue(), null));
                context.setSuspendCurrentQueueTimeMillis(SUSPENDED_MS);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            count.addAndGet(messages.size());
            messages.forEach(message -> log("consumed", message, context.getMessageQueue(), "success"));
            consumed.addAndGet(messages.size());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.setMaxReconsumeTimes(Integer.MAX_VALUE); // a suspended message is no failed one
        consumer.start();
    }

    /** Ends the consumer, which tells the broker its offsets, and logs them. */
    void stop() {
        consumer.shutdown();
        for (String topic : topics) {
            consumer.getDefaultMQPushConsumerImpl().getOffsetStore().cloneOffsetTable(topic).forEach((queue, offset) ->
                log.add("offset", "group", group, "topic", queue.getTopic(), "queueId", queue.getQueueId(), "offset", offset));
        }
    }

    private void log(String event, MessageExt message, MessageQueue queue, String result) {
        log.add(event,
            "group", group,
            "message", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
            "keys", message.getKeys(),
            "topic", queue.getTopic(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "physicalOffset", message.getCommitLogOffset(),
            "storeTimestamp", message.getStoreTimestamp(),
            "reconsumeTimes", message.getReconsumeTimes(),
            "result", result);
    }
}
