import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Orders: plain, compressed, delayed by level, sent twice, some of which a consumer cannot handle; and batches of events. */
final class OrderTraffic {
    static final String TOPIC = "orders";
    static final String EVENTS_TOPIC = "events";
    static final String BILLED_TAGS = "paid || shipped";

    private static final String[] TAGS = {"paid", "shipped", "refund"};
    private static final String POISON = "poison";
    private static final String FLAKY = "flaky";
    private static final int ATTEMPTS_OF_POISON = 3;
    private static final int LAST_LEVEL = 18;
    private static final int BATCH = 6;
    private static final int LARGE = 6000;

    /** How often groups are to get messages, and how many are to be dead letters, so far. */
    int delivered;
    int billed;
    int dead;
    int events;
    private final ClientLog log;
    private final DefaultMQProducer producer = new DefaultMQProducer("shop", true, null);

    OrderTraffic(RealBroker broker, ClientLog log) throws Exception {
        this.log = log;
        producer.setNamesrvAddr(broker.nameServer);
        producer.start();
    }

    void send(int number) throws Exception {
        String name = number % 50 == 7 ? POISON : number % 50 == 27 ? FLAKY : "order";
        String body = number % 35 == 5 ? "z".repeat(LARGE) + number : "{\"order\":" + number + ",\"pad\":\"" + "x".repeat(number * 13 % 200) + "\"}";
        Message message = new Message(TOPIC, TAGS[number % TAGS.length], name + "-" + number, body.getBytes(StandardCharsets.UTF_8));
        if (number % 20 == 3) {
            message.setDelayTimeLevel(number % 100 == 3 ? LAST_LEVEL : 1 + number % 3);
        }
        boolean delayed = message.getDelayTimeLevel() > 0;
        SendResult result = producer.send(message);
        log.sent(delayed ? "delayed" : "stored", message, result.getOffsetMsgId(), result.getQueueOffset(), result);
        expect(name, message);
        if (number % 50 == 9) {
            SendResult again = producer.send(message);
            log.sent("resent", message, again.getOffsetMsgId(), again.getQueueOffset(), again);
            expect(name, message);
        }
    }

    private void expect(String name, Message message) {
        if (message.getDelayTimeLevel() == LAST_LEVEL) {
            return;
        }
        delivered++;
        if (BILLED_TAGS.contains(message.getTags())) {
            billed += name.equals(POISON) ? ATTEMPTS_OF_POISON : name.equals(FLAKY) ? 2 : 1;
            dead += name.equals(POISON) ? 1 : 0;
        }
    }

    void sendBatch(int number) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            batch.add(new Message(EVENTS_TOPIC, "batch", "event-" + number + "-" + i, ("event " + i).getBytes(StandardCharsets.UTF_8)));
        }
        SendResult result = producer.send(batch);
        String[] ids = result.getOffsetMsgId().split(",");
        for (int i = 0; i < BATCH; i++) {
            log.sent("batch", batch.get(i), ids[i], result.getQueueOffset() + i, result);
        }
        events += BATCH;
    }

    /** What the group that bills cannot handle. */
    static boolean fails(MessageExt order) {
        return order.getKeys().startsWith(POISON) || order.getKeys().startsWith(FLAKY) && order.getReconsumeTimes() == 0;
    }

    void stop() {
        producer.shutdown();
    }
}
