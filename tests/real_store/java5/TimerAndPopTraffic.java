import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Messages by timer, due, due in an hour, or recalled; and a group that pops: acknowledges, asks for more time, or forgets. */
public final class TimerAndPopTraffic implements NewerTraffic {
    private static final int ORDERS_PER_POPPED = 8;
    private static final int ORDERS_PER_TIMED = 20;
    private static final long HOUR_MS = 3_600_000;
    private static final long INVISIBLE_MS = 4000;
    private static final int TIMEOUT_MS = 5000;
    private static final int POLL_MS = 500;
    private static final int MESSAGES_PER_POP = 8;
    private static final int REVIVE_QUEUES = 8;
    private static final String REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster";

    static {
        System.setProperty("com.rocketmq.recall.default.trace.enable", "true"); // message trace has no recalls by default
    }

    private final DefaultMQProducer producer = new DefaultMQProducer("newer", true, null);
    private final Set<String> checkpoints = new HashSet<>();
    private RealBroker broker;
    private ClientLog log;
    private String address;
    private int delivered;
    private int popped;
    private int acknowledged;

    @Override
    public void start(RealBroker theBroker, ClientLog theLog) throws Exception {
        broker = theBroker;
        log = theLog;
        address = RealBroker.HOST + ":" + broker.address.getPort();
        producer.setNamesrvAddr(broker.nameServer);
        producer.start();
    }

    @Override
    public int delivered() {
        return delivered;
    }

    @Override
    public void send(int number) throws Exception {
        if (number % ORDERS_PER_POPPED == 1) {
            Message message = new Message(POP_TOPIC, "pop", "pop-" + popped++, ("popped " + number).getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message);
            log.sent("stored", message, result.getOffsetMsgId(), result.getQueueOffset(), result);
        }
        if (number % ORDERS_PER_TIMED == 2) {
            sendTimed(number / ORDERS_PER_TIMED);
        }
    }

    private void sendTimed(int number) throws Exception {
        Message message = new Message(TIMED_TOPIC, "timer", "timer-" + number, ("timed " + number).getBytes(StandardCharsets.UTF_8));
        boolean late = number % 3 == 1;
        boolean recalled = number % 6 == 4;
        long deliveryMs = System.currentTimeMillis() + (late ? HOUR_MS : 2000 + number * 37L);
        if (number % 2 == 0) {
            message.setDeliverTimeMs(deliveryMs);
        } else {
            message.setDelayTimeMs(deliveryMs - System.currentTimeMillis());
        }
        SendResult result = producer.send(message);
        log.sent("timer", message, result.getOffsetMsgId(), result.getQueueOffset(), result, "deliveryTime", deliveryMs);
        if (recalled) {
            log.add("recalled", "message", producer.recallMessage(TIMED_TOPIC, result.getRecallHandle()));
        }
        delivered += late ? 0 : 1;
    }

    @Override
    public void finish() throws Exception {
        Set<String> done = new HashSet<>();
        long begin = System.nanoTime();
        while (done.size() < popped) {
            for (MessageExt message : pop()) {
                if (handle(message)) {
                    done.add(message.getKeys());
                }
            }
            if (System.nanoTime() - begin > 120e9) {
                throw new IllegalStateException(done.size() + " of " + popped + " popped messages are acknowledged");
            }
        }
        ClientLog.await("the revive log", () -> revived() >= checkpoints.size() + acknowledged);
        producer.shutdown();
    }

    private long revived() throws Exception {
        long all = 0;
        for (int queue = 0; queue < REVIVE_QUEUES; queue++) {
            all += broker.store().getMaxOffsetInQueue(REVIVE_TOPIC, queue);
        }
        return all;
    }

    /** One in five is forgotten when it comes first, one in five gets more time. Returns whether the message is acknowledged. */
    private boolean handle(MessageExt message) throws Exception {
        String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(handle);
        String topic = ExtraInfoUtil.getRealTopic(parts, POP_TOPIC, POP_GROUP);
        int number = Integer.parseInt(message.getKeys().substring("pop-".length()));
        boolean again = message.getReconsumeTimes() > 0;
        String result = again ? "ack" : number % 5 == 0 ? "forgotten" : number % 5 == 1 ? "later" : "ack";
        log(message, topic, parts, result);
        if (result.equals("later")) {
            handle = changeInvisibleTime(handle, topic, parts).getExtraInfo();
            checkpoints.add(handle);
            acknowledged++; // the broker's answer to it is a new checkpoint, and an acknowledgement of the first
        }
        if (!result.equals("forgotten")) {
            acknowledge(handle, topic, parts);
            acknowledged++;
        }
        return !result.equals("forgotten");
    }

    private void log(MessageExt message, String topic, String[] parts, String result) {
        log.add("popped",
            "group", POP_GROUP,
            "message", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
            "keys", message.getKeys(),
            "topic", topic,
            "queueId", message.getQueueId(),
            "queueOffset", ExtraInfoUtil.getQueueOffset(parts),
            "physicalOffset", message.getCommitLogOffset(),
            "storeTimestamp", message.getStoreTimestamp(),
            "reconsumeTimes", message.getReconsumeTimes(),
            "popTime", ExtraInfoUtil.getPopTime(parts),
            "result", result);
        checkpoints.add(topic + " " + message.getQueueId() + " " + ExtraInfoUtil.getPopTime(parts) + " " + ExtraInfoUtil.getCkQueueOffset(parts));
    }

    private Iterable<MessageExt> pop() throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(POP_GROUP);
        header.setTopic(POP_TOPIC);
        header.setQueueId(-1);
        header.setMaxMsgNums(MESSAGES_PER_POP);
        header.setInvisibleTime(INVISIBLE_MS);
        header.setPollTime(POLL_MS);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setExpType(ExpressionType.TAG);
        header.setExp("*");
        header.setOrder(false);
        CompletableFuture<PopResult> answer = new CompletableFuture<>();
        client().popMessageAsync(RealBroker.NAME, address, header, TIMEOUT_MS, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                answer.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                answer.completeExceptionally(failure);
            }
        });
        PopResult result = answer.get();
        return result.getMsgFoundList() == null ? new HashSet<>() : result.getMsgFoundList();
    }

    private void acknowledge(String handle, String topic, String[] parts) throws Exception {
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(POP_GROUP);
        header.setTopic(topic);
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        Answer answer = new Answer();
        client().ackMessageAsync(address, TIMEOUT_MS, answer, header);
        answer.get();
    }

    private AckResult changeInvisibleTime(String handle, String topic, String[] parts) throws Exception {
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(POP_GROUP);
        header.setTopic(topic);
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        header.setInvisibleTime(INVISIBLE_MS);
        Answer answer = new Answer();
        client().changeInvisibleTimeAsync(RealBroker.NAME, address, header, TIMEOUT_MS, answer);
        return answer.get();
    }

    private MQClientAPIImpl client() {
        return producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    /** Waits for the broker's answer. */
    private static final class Answer extends CompletableFuture<AckResult> implements AckCallback {
        @Override
        public void onSuccess(AckResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable failure) {
            completeExceptionally(failure);
        }
    }
}
