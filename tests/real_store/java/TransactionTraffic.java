import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Transactions that end at once, after one or two checks by the broker, or never. The number in KEYS says how.
 *
 * A broker may give up a message in the very round of its last check, also if the producer then ends the transaction: so it must be allowed more than two.
 */
final class TransactionTraffic implements TransactionListener {
    static final String TOPIC = "payments";
    static final String GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC";

    private static final int WAYS = 8;

    /** Messages that are to be consumed, and those that the broker is to give up, so far. */
    int committed;
    int givenUp;
    private final AtomicInteger ended = new AtomicInteger();
    private final ClientLog log;
    private final TransactionMQProducer producer;
    private final Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();
    private int count;

    TransactionTraffic(RealBroker broker, ClientLog log) throws Exception {
        this.log = log;
        producer = producer("transactions");
        producer.setNamesrvAddr(broker.nameServer);
        producer.setTransactionListener(this);
        producer.start();
    }

    /** With message trace where the version has it for transactions. */
    private static TransactionMQProducer producer(String group) throws ReflectiveOperationException {
        Constructor<TransactionMQProducer> traced;
        try {
            traced = TransactionMQProducer.class.getConstructor(String.class, String.class, RPCHook.class, boolean.class, String.class);
        } catch (NoSuchMethodException before49) {
            return new TransactionMQProducer(group);
        }
        return traced.newInstance(null, group, null, true, null);
    }

    void send() throws Exception {
        int number = count++;
        Message message = new Message(TOPIC, "tx", "tx-" + number, ("payment " + number).getBytes(StandardCharsets.UTF_8));
        SendResult result = producer.sendMessageInTransaction(message, null);
        log.sent("half", message, result.getOffsetMsgId(), result.getQueueOffset(), result);
        committed += last(number) == LocalTransactionState.COMMIT_MESSAGE ? 1 : 0;
        givenUp += last(number) == LocalTransactionState.UNKNOW ? 1 : 0;
    }

    /** Whether each transaction has ended that the producer ever ends. */
    boolean allEnded() {
        return ended.get() >= count - givenUp;
    }

    void stop() {
        producer.shutdown();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return answer("end", message, 0, null);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        int check = checks.computeIfAbsent(message.getKeys(), keys -> new AtomicInteger()).incrementAndGet();
        return answer("check", message, check, message.getCommitLogOffset());
    }

    private LocalTransactionState answer(String event, Message message, int check, Long physicalOffset) {
        int number = Integer.parseInt(message.getKeys().substring("tx-".length()));
        LocalTransactionState state = check >= checksBefore(number) ? last(number) : LocalTransactionState.UNKNOW;
        String key = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        log.add(event, "message", key, "physicalOffset", physicalOffset, "state", state.name());
        ended.addAndGet(state == LocalTransactionState.UNKNOW ? 0 : 1);
        return state;
    }

    private static LocalTransactionState last(int number) {
        switch (number % WAYS) {
            case 1: case 3: case 6:
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case 7:
                return LocalTransactionState.UNKNOW;
            default:
                return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static int checksBefore(int number) {
        switch (number % WAYS) {
            case 2: case 3:
                return 1;
            case 5: case 6:
                return 2;
            default:
                return 0;
        }
    }
}
