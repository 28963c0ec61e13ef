import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * A real producer at the name server -Dnamesrv: for each line "COUNT BODY_SIZE TOPIC TIMEOUT_MS DELAY_LEVEL IN_TRANSACTIONS" of stdin, COUNT
 * puts, one try each, and one line of stdout with a JSON list: status, ms, and queueId, queueOffset, physicalOffset, or error.
 *
 * IN_TRANSACTIONS is true or false. Transactions end at once: each third is rolled back, the others are committed.
 */
public final class Sender implements TransactionListener {
    private static final int ROLLED_BACK_EACH = 3;
    private static final int PHYSICAL_OFFSET_DIGITS = 16;
    private static final int HEX = 16;

    private static int sequence;

    private Sender() {
    }

    public static void main(String[] arguments) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, failed) -> {
            failed.printStackTrace();
            System.exit(1);
        });
        TransactionMQProducer producer = new TransactionMQProducer("sender");
        producer.setNamesrvAddr(Program.text("namesrv"));
        producer.setVipChannelEnabled(false);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setTransactionListener(new Sender());
        producer.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringBuilder out = new StringBuilder();
            Json.write(puts(producer, line.split(" ")), out);
            System.out.println("puts " + out);
            System.out.flush();
        }
        System.exit(0);
    }

    private static List<Object> puts(TransactionMQProducer producer, String[] words) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(words[0]); i++) {
            Message message = new Message(words[2], "TagA", "key-" + sequence, new byte[Integer.parseInt(words[1])]);
            if (!"0".equals(words[4])) {  // 5.5.0 refuses a transaction that has a level, whichever
                message.setDelayTimeLevel(Integer.parseInt(words[4]));
            }
            sequence++;
            rows.add(put(producer, message, Long.parseLong(words[3]), Boolean.parseBoolean(words[5])));
        }
        return rows;
    }

    private static Map<String, Object> put(TransactionMQProducer producer, Message message, long timeoutMs, boolean inTransaction)
        throws InterruptedException {
        Map<String, Object> row = new LinkedHashMap<>();
        producer.setSendMsgTimeout((int) timeoutMs);  // a transaction takes no timeout of its own
        long begin = System.nanoTime();
        try {
            SendResult result = inTransaction ? producer.sendMessageInTransaction(message, null) : producer.send(message);
            String id = result.getOffsetMsgId();
            row.put("status", result.getSendStatus().name());
            row.put("queueId", result.getMessageQueue().getQueueId());
            row.put("queueOffset", result.getQueueOffset());
            if (id != null) {  // 4.x says none of a transaction's
                row.put("physicalOffset", Long.parseLong(id.substring(id.length() - PHYSICAL_OFFSET_DIGITS), HEX));
            }
        } catch (MQBrokerException | RemotingException | org.apache.rocketmq.client.exception.MQClientException failed) {
            row.put("status", "EXCEPTION");
            row.put("error", withCauses(failed));
        }
        row.put("ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin));
        return row;
    }

    /** The exception and its causes: the client says only "send message Exception" of a transaction, whatever happened. */
    private static String withCauses(Throwable failed) {
        StringBuilder causes = new StringBuilder();
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            causes.append(causes.length() > 0 ? ", caused by " : "").append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
        }
        return causes.toString();
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return end(message);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return end(message);
    }

    private static LocalTransactionState end(Message message) {
        int number = Integer.parseInt(message.getKeys().substring("key-".length()));
        return number % ROLLED_BACK_EACH == 0 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
    }
}
