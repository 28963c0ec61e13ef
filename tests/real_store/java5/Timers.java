import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;

/**
 * Starts a broker on a store, sends -Dcount timer messages, runs for -Dseconds more, and dies as by kill -9.
 *
 * <p>A third is due while it runs, a third after, a third in a minute or two. Each tenth is then deleted.
 */
public final class Timers {
    private static final String TOPIC = "timed";
    private static final int[] DELAYS_MS = {1500, 15_000, 60_000};
    private static final int STEP_MS = 97;
    private static final int DELETED_EACH = 10;

    private Timers() {
    }

    public static void main(String[] arguments) {
        Program.run(Timers::runAndDie);
    }

    private static Object runAndDie() throws Exception {
        RealBroker broker = RealBroker.start();
        List<Object> deleted = new ArrayList<>();
        int count = Program.number("count");
        if (count > 0) {
            broker.createTopic(TOPIC, 4);
            send(broker, count, deleted);
        }
        Thread.sleep(1000L * Program.number("seconds"));
        Program.report(Map.of("deleted", deleted));
        Runtime.getRuntime().halt(Program.KILLED);
        return null;
    }

    private static void send(RealBroker broker, int count, List<Object> deleted) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("timers");
        producer.setNamesrvAddr(broker.nameServer);
        producer.start();
        for (int number = 0; number < count; number++) {
            long due = System.currentTimeMillis() + DELAYS_MS[number % DELAYS_MS.length] + number * STEP_MS % 5000;
            SendResult sent = producer.send(message("timer" + number, due));
            if (number % DELETED_EACH == 4) {
                Message delete = message("delete" + number, due);
                MessageAccessor.putProperty(delete, MessageConst.PROPERTY_TIMER_DEL_UNIQKEY, Program.text("deletePrefix") + sent.getMsgId());
                producer.send(delete);
                deleted.add("timer" + number);
            }
        }
    }

    private static Message message(String key, long due) {
        Message message = new Message(TOPIC, "T", key, key.getBytes(StandardCharsets.UTF_8));
        message.setDeliverTimeMs(due);
        return message;
    }
}
