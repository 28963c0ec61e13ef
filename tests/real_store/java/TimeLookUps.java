import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Asks a store for the offset of a time: each at which messages of a queue were stored, a millisecond around it, and a day. */
final class TimeLookUps {
    private static final long DAY_MS = 86_400_000L;

    private TimeLookUps() {
    }

    /** Pairs of a time and an offset, by time. */
    static List<Object> ask(DefaultMessageStore store, QueueRange range, List<MessageExt> messages) {
        TreeSet<Long> times = new TreeSet<>();
        for (MessageExt message : messages) {
            long stored = message.getStoreTimestamp();
            times.addAll(Arrays.asList(stored - 1, stored, stored + 1));
        }
        if (!times.isEmpty()) {
            times.addAll(Arrays.asList(times.first() - DAY_MS, times.last() + DAY_MS));
        }
        List<Object> answers = new ArrayList<>();
        for (long time : times) {
            answers.add(Arrays.asList(time, store.getOffsetInQueueByTime(range.topic, range.queueId, time)));
        }
        return answers;
    }
}
