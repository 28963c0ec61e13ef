import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*; // MessageExtBrokerInner is here up to 4.x, in common.message since 5.0

/** Puts -Dcount messages into a store, new or old, then shuts it down or, with -Dcrash=true, dies as by kill -9. */
public final class Put {
    private static final int RETRY_MS = 1;
    private static final long GIVE_UP_NS = TimeUnit.SECONDS.toNanos(60);

    /** Answers of a store that is only busy, in the spellings of 4.x and 5.x. */
    private static final Set<String> BUSY = new HashSet<>(Arrays.asList(
        "OS_PAGECACHE_BUSY", "OS_PAGE_CACHE_BUSY", "CREATE_MAPEDFILE_FAILED", "CREATE_MAPPED_FILE_FAILED"));

    private Put() {
    }

    public static void main(String[] arguments) {
        Program.run(Put::put);
    }

    private static Object put() throws Exception {
        DefaultMessageStore store = RealStore.open();
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        RealStore.start(store);

        int count = Program.number("count");
        MessageMaker messages = new MessageMaker();
        long begin = System.nanoTime();
        long end = 0;
        for (int i = 0; i < count; i++) {
            end = put(store, messages.next());
        }
        double seconds = Program.secondsSince(begin);

        // a store that shuts down before its queues are complete keeps the abort file
        RealStore.awaitCommit(store, end);
        RealStore.awaitDispatch(store);
        store.flush();
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("count", count);
        document.put("seconds", seconds);
        document.put("maxPhyOffset", store.getMaxPhyOffset());
        if (Program.flag("crash")) {
            Program.report(document);
            Runtime.getRuntime().halt(Program.KILLED);
        }
        store.shutdown();
        return document;
    }

    /** Puts a message and returns the physical offset of its end. */
    private static long put(DefaultMessageStore store, MessageExtBrokerInner message) throws InterruptedException {
        PutMessageResult result = store.putMessage(message);
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            result = retry(store, message, result);
        }
        AppendMessageResult appended = result.getAppendMessageResult();
        return appended.getWroteOffset() + appended.getWroteBytes();
    }

    private static PutMessageResult retry(
        DefaultMessageStore store, MessageExtBrokerInner message, PutMessageResult answer) throws InterruptedException {
        long begin = System.nanoTime();
        PutMessageResult result = answer;
        while (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            String status = result.getPutMessageStatus().name();
            if (!BUSY.contains(status) || System.nanoTime() - begin > GIVE_UP_NS) {
                throw new IllegalStateException("the store refuses a message: " + status);
            }
            Thread.sleep(RETRY_MS);
            result = store.putMessage(message);
        }
        return result;
    }
}
