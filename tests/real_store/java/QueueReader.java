import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;

/** Consumes a queue from its min offset to its max offset, and looks offsets up by time. */
final class QueueReader {
    private static final int MESSAGES_PER_GET = 32;
    private static final long DAY_MS = 86_400_000L;

    /** Stands for an offset where the store itself fails on a look-up. */
    private static final long LOOK_UP_FAILED = -9;

    private final DefaultMessageStore store;
    private final QueueRange range;

    QueueReader(DefaultMessageStore store, QueueRange range) {
        this.store = store;
        this.range = range;
    }

    /** The queue's row; the messages are added to those consumed. */
    Map<String, Object> read(List<MessageExt> consumed) {
        Map<String, Object> document = range.document();
        document.put("entries", entries(consumed));
        long middle = storedAt((range.minOffset + range.maxOffset) / 2);
        document.put("midTimestamp", middle);
        document.put("offsetByMidTimestamp", offsetByTime(middle));
        document.put("offsetByZero", offsetByTime(0));
        document.put("offsetByFuture", offsetByTime(middle + DAY_MS));
        return document;
    }

    /** RocksDB's queues fail where they have no row, or one that leads to no message. */
    private long storedAt(long offset) {
        try {
            return store.getMessageStoreTimeStamp(range.topic, range.queueId, offset);
        } catch (RuntimeException failure) {
            return LOOK_UP_FAILED;
        }
    }

    /**
     * A triple for each message, and a map {at, status} for each place that gives none. A unit to offset 0 leads to the log's
     * first file, whichever that is: then what is found there is no record.
     */
    private List<Object> entries(List<MessageExt> consumed) {
        List<Object> entries = new ArrayList<>();
        long offset = range.minOffset;
        while (offset < range.maxOffset) {
            GetMessageResult result;
            try {
                result = store.getMessage("rmqctl", range.topic, range.queueId, offset, MESSAGES_PER_GET, null);
            } catch (NullPointerException withoutRow) { // of RocksDB's queues: so the consumer gets no further
                entries.add(gap(offset, "FAILED"));
                offset++;
                continue;
            }
            if (result.getStatus() == GetMessageStatus.FOUND) {
                addMessages(result, entries, consumed);
            } else {
                entries.add(gap(offset, result.getStatus().name()));
            }
            long next = result.getNextBeginOffset();
            result.release();
            if (next <= offset) {
                break;
            }
            offset = next;
        }
        return entries;
    }

    private static void addMessages(GetMessageResult result, List<Object> entries, List<MessageExt> consumed) {
        for (ByteBuffer record : result.getMessageBufferList()) {
            MessageExt message = decoded(record.duplicate());
            if (message == null) {
                entries.add(gap(0, GetMessageStatus.MESSAGE_WAS_REMOVING.name()));
                continue;
            }
            entries.add(Arrays.asList(message.getQueueOffset(), message.getCommitLogOffset(), message.getStoreSize()));
            consumed.add(message);
        }
    }

    /** With its body, which is not decompressed: its CRC is that of the stored bytes. A damaged body length can ask for any memory. */
    private static MessageExt decoded(ByteBuffer record) {
        try {
            return MessageDecoder.decode(record, true, false);
        } catch (OutOfMemoryError damaged) {
            return null;
        }
    }

    private static Map<String, Object> gap(long offset, String status) {
        Map<String, Object> gap = new LinkedHashMap<>();
        gap.put("at", offset);
        gap.put("status", status);
        return gap;
    }

    private long offsetByTime(long time) {
        try {
            return store.getOffsetInQueueByTime(range.topic, range.queueId, time);
        } catch (RuntimeException failure) {
            return LOOK_UP_FAILED;
        }
    }
}
