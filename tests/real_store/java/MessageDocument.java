import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** A message in full, except for its body, of which length and CRC-32 stand. */
final class MessageDocument {
    private static final long SIGN_BIT_OFF = 0x7fffffffL;

    private MessageDocument() {
    }

    /** cqTopic and cqQueueId: the queue that the message was read by, which need not be the one that it names. */
    static Map<String, Object> of(MessageExt message, String cqTopic, int cqQueueId) throws UnknownHostException {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("topic", message.getTopic());
        document.put("queueId", message.getQueueId());
        document.put("queueOffset", message.getQueueOffset());
        document.put("physicalOffset", message.getCommitLogOffset());
        document.put("size", message.getStoreSize());
        document.put("bodyCrc", message.getBodyCRC());
        document.put("bodyLength", body.length);
        document.put("crc32", crc32(body));
        document.put("flag", message.getFlag());
        document.put("sysFlag", message.getSysFlag());
        document.put("bornTimestamp", message.getBornTimestamp());
        document.put("bornHost", hostAndPort(message.getBornHost()));
        document.put("storeTimestamp", message.getStoreTimestamp());
        document.put("storeHost", hostAndPort(message.getStoreHost()));
        document.put("reconsumeTimes", message.getReconsumeTimes());
        document.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        document.put("msgId", MessageDecoder.createMessageId(message.getStoreHost(), message.getCommitLogOffset()));
        document.put("cqTopic", cqTopic);
        document.put("cqQueueId", cqQueueId);
        document.put("properties", properties(message));
        return document;
    }

    /** As records have it: without the sign bit. */
    private static long crc32(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue() & SIGN_BIT_OFF;
    }

    private static Map<String, String> properties(MessageExt message) {
        // null where a record has none
        Map<String, String> properties = message.getProperties();
        return properties == null ? new TreeMap<>() : new TreeMap<>(properties);
    }

    private static String hostAndPort(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }
}
