import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Stays, and starts the store of each broker.conf that a line of stdin names (NUMBER, tab, path): a line of JSON on stdout says what the
 * start came to. Several at once: most of a start is waiting.
 *
 * A start that takes longer than -Dseconds hangs: it is interrupted and given up. No store is waited for when it shuts down.
 */
public final class Restarts {
    private static final int AT_ONCE = 10;
    private static final int PLACES_MAX = 20_000;

    private final PrintStream answers;
    private final String number;
    private final String conf;
    private final AtomicBoolean isAnswered = new AtomicBoolean();
    private final CountDownLatch answered = new CountDownLatch(1);
    private volatile DefaultMessageStore store;
    private volatile String phase = "load";

    private Restarts(PrintStream answers, String number, String conf) {
        this.answers = answers;
        this.number = number;
        this.conf = conf;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // stores may print
        Semaphore turns = new Semaphore(AT_ONCE);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] asked = line.split("\t");
            turns.acquire();
            new Thread(() -> {
                try {
                    new Restarts(answers, asked[0], asked[1]).answerInTime();
                } finally {
                    turns.release();
                }
            }).start();
        }
        turns.acquire(AT_ONCE);
        Runtime.getRuntime().halt(0);
    }

    private void answerInTime() {
        Thread restart = new Thread(this::restart);
        restart.start();
        try {
            if (answered.await(Program.number("seconds"), TimeUnit.SECONDS)) {
                return;
            }
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("hangs", phase);
        document.put("reputFrom", reputFrom());
        answer(document);
        restart.interrupt();
    }

    private void restart() {
        Map<String, Object> document = new LinkedHashMap<>();
        try {
            store = RealStore.open(conf);
            boolean loaded = store.load();
            document.put("load", loaded);
            if (loaded) {
                phase = "start";
                RealStore.start(store);
                phase = "read";
                describe(document);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            document.put("failedIn", phase);
            document.put("error", failure.toString());
        }
        answer(document);
        if (store != null) {
            store.shutdown();
        }
    }

    private void describe(Map<String, Object> document) throws Exception {
        document.put("minPhyOffset", store.getMinPhyOffset());
        document.put("maxPhyOffset", store.getMaxPhyOffset());
        List<Object> queues = new ArrayList<>();
        for (QueueRange range : QueueRange.all(store)) {
            Map<String, Object> queue = range.document();
            if (range.maxOffset - range.minOffset <= PLACES_MAX) {
                queue.put("places", places(range));
            }
            queues.add(queue);
        }
        document.put("queues", queues);
    }

    /** Place, physical offset and size of the message that a consumer gets who asks for this place; a record's own QUEUEOFFSET can differ. */
    private List<Object> places(QueueRange range) throws ReflectiveOperationException {
        List<Object> places = new ArrayList<>();
        for (long place = Math.max(range.minOffset, 0); place < range.maxOffset; place++) {
            GetMessageResult result;
            try {
                result = store.getMessage("rmqctl", range.topic, range.queueId, place, 1, null);
            } catch (RuntimeException failure) { // of a size that no unit may have
                continue;
            }
            for (SelectMappedBufferResult record : result.getMessageMapedList()) {
                if (result.getNextBeginOffset() == place + 1 && record.getSize() > 0) {
                    places.add(place);
                    places.add(record.getStartOffset());
                    places.add(record.getSize());
                }
            }
            result.release();
        }
        return places;
    }

    /** Where dispatch waits; -1: it does not. */
    private long reputFrom() {
        try {
            Field field = DefaultMessageStore.class.getDeclaredField("reputMessageService");
            field.setAccessible(true);
            Object service = field.get(store);
            Method getter = service.getClass().getDeclaredMethod("getReputFromOffset");
            getter.setAccessible(true);
            return (Long) getter.invoke(service);
        } catch (ReflectiveOperationException | NullPointerException unknown) {
            return -1;
        }
    }

    private void answer(Map<String, Object> document) {
        if (!isAnswered.compareAndSet(false, true)) {
            return;
        }
        StringBuilder line = new StringBuilder();
        document.put("number", Integer.parseInt(number));
        try {
            Json.write(document, line);
        } catch (java.io.IOException never) {
            throw new IllegalStateException(never);
        }
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
        answered.countDown();
    }
}
