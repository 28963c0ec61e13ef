import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.MessageStore;

/** Starts a broker on the store that -Dconf names, has real clients send and consume -Dcount orders and more, and ends all cleanly. */
public final class Traffic {
    private static final int QUEUES = 4;
    private static final int LIMIT_OF_AUDIT = 30;
    private static final int ORDERS_PER_TRANSACTION = 8;
    private static final int ORDERS_PER_BATCH = 40;
    private static final int SETTLED_MS = 1500;
    private static final String RETRIES = "%RETRY%billing";
    private static final String DEAD_LETTERS = "%DLQ%billing";
    private static final List<String> TOPICS = Arrays.asList(OrderTraffic.TOPIC, OrderTraffic.EVENTS_TOPIC, TransactionTraffic.TOPIC, NewerTraffic.TIMED_TOPIC);

    private final ClientLog log = new ClientLog();
    private final RealBroker broker;
    private final OrderTraffic orders;
    private final TransactionTraffic transactions;
    private final NewerTraffic newer;
    private final LoggedConsumer ledger;
    private final LoggedConsumer billing;
    private final LoggedConsumer audit;

    private Traffic() throws Exception {
        broker = RealBroker.start();
        List<String> topics = new ArrayList<>(TOPICS);
        topics.add(NewerTraffic.POP_TOPIC);
        for (String topic : topics) {
            broker.createTopic(topic, QUEUES);
        }
        broker.createTopic(RETRIES, 1); // otherwise the consumer finds it with its next rebalance, after 20 s
        orders = new OrderTraffic(broker, log);
        transactions = new TransactionTraffic(broker, log);
        newer = NewerTraffic.find();
        ledger = new LoggedConsumer(broker, log, "ledger");
        billing = new LoggedConsumer(broker, log, "billing");
        audit = new LoggedConsumer(broker, log, "audit");
    }

    public static void main(String[] arguments) {
        Program.run(() -> new Traffic().run());
    }

    private Object run() throws Exception {
        startConsumers();
        send(Program.number("count"));
        awaitAll();
        stopClients();
        List<String> groups = new ArrayList<>(Arrays.asList("ledger", "billing", "audit"));
        if (newer != null) {
            groups.add(NewerTraffic.POP_GROUP);
        }
        broker.registerTopics(); // POP's retries have a topic of their own
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("progress", ConsumerProgress.rows(broker, groups));
        broker.shutdown();
        document.put("events", log.events());
        return document;
    }

    private void startConsumers() throws Exception {
        for (String topic : TOPICS) {
            ledger.subscribe(topic, "*");
        }
        ledger.start(message -> false);
        billing.subscribe(OrderTraffic.TOPIC, OrderTraffic.BILLED_TAGS);
        billing.start(OrderTraffic::fails);
        audit.subscribe(OrderTraffic.TOPIC, "*");
        audit.startUpTo(LIMIT_OF_AUDIT);
    }

    private void send(int count) throws Exception {
        if (newer != null) {
            newer.start(broker, log);
        }
        for (int number = 0; number < count; number++) {
            orders.send(number);
            if (number % ORDERS_PER_TRANSACTION == 0) {
                transactions.send();
            }
            if (number % ORDERS_PER_BATCH == 0) {
                orders.sendBatch(number);
            }
            if (newer != null) {
                newer.send(number);
            }
        }
    }

    private void awaitAll() throws Exception {
        MessageStore store = broker.store();
        if (newer != null) {
            newer.finish();
        }
        int all = orders.delivered + orders.events + transactions.committed + (newer == null ? 0 : newer.delivered());
        ClientLog.await("transactions", transactions::allEnded);
        ClientLog.await("all messages", () -> ledger.consumed.get() >= all);
        ClientLog.await("bills", () -> billing.consumed.get() >= orders.billed);
        ClientLog.await("the audit", () -> audit.consumed.get() >= QUEUES * LIMIT_OF_AUDIT);
        ClientLog.await("dead letters", () -> store.getMaxOffsetInQueue(DEAD_LETTERS, 0) >= orders.dead);
        ClientLog.await("transactions given up", () -> store.getMaxOffsetInQueue(TransactionTraffic.GIVEN_UP_TOPIC, 0) >= transactions.givenUp);
        Thread.sleep(SETTLED_MS); // for op messages and message trace, which come in batches
    }

    private void stopClients() throws InterruptedException {
        ledger.stop();
        billing.stop();
        audit.stop();
        orders.stop();
        transactions.stop();
        Thread.sleep(SETTLED_MS); // nobody answers the consumers' last offsets
    }
}
