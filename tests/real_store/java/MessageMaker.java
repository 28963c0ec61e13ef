import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.SplittableRandom;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*; // MessageExtBrokerInner is here up to 4.x, in common.message since 5.0

/** Messages as -DbodySize, -DkeyWords, -Dtags, -Dtopics, -DqueuesPerTopic and -Dseed say; the same ones each time, timestamps aside. */
final class MessageMaker {
    private static final int PRODUCERS = 200;
    private static final int SHARED_KEYS = 1000;
    private static final int TRAVEL_MS = 50;
    private static final char[] HEX = "0123456789ABCDEF".toCharArray();

    private final int seed = Program.number("seed");
    private final int bodySize = Program.number("bodySize");
    private final int keyWords = Program.number("keyWords");
    private final int queuesPerTopic = Program.number("queuesPerTopic");
    private final String[] topics = names("topic-", Program.number("topics"));
    private final String[] tags = names("Tag", Program.number("tags"));
    private final SplittableRandom random = new SplittableRandom(seed);
    private final InetSocketAddress[] bornHosts = new InetSocketAddress[PRODUCERS];
    private final InetSocketAddress storeHost = address(192, 168, 7, 9, 10911);
    private long sequence;

    MessageMaker() throws UnknownHostException {
        for (int i = 0; i < PRODUCERS; i++) {
            bornHosts[i] = address(10, 1, 2, 1 + i, 30000 + i);
        }
    }

    MessageExtBrokerInner next() {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(oneOf(topics));
        message.setQueueId(random.nextInt(queuesPerTopic));
        message.setBody(body());
        message.setBornTimestamp(System.currentTimeMillis() - random.nextInt(TRAVEL_MS));
        message.setBornHost(oneOf(bornHosts));
        message.setStoreHost(storeHost);
        addProperties(message);
        sequence++;
        return message;
    }

    private void addProperties(MessageExtBrokerInner message) {
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, uniqueKey());
        if (keyWords > 0) {
            message.setKeys(keys());
        }
        if (tags.length > 0) {
            message.setTags(oneOf(tags));
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
    }

    private byte[] body() {
        byte[] body = new byte[bodySize];
        random.nextBytes(body);
        return body;
    }

    /** The first word is the message's own, others are shared with other messages. */
    private String keys() {
        StringBuilder keys = new StringBuilder().append("order-").append(sequence);
        for (int word = 1; word < keyWords; word++) {
            keys.append(" user").append(word).append('-').append(random.nextInt(SHARED_KEYS));
        }
        return keys.toString();
    }

    /** 32 digits as clients give them. By hand: String.format takes longer than a put. */
    private String uniqueKey() {
        char[] digits = new char[32];
        putHex(digits, 0, seed);
        putHex(digits, 16, sequence);
        return new String(digits);
    }

    private static void putHex(char[] digits, int at, long value) {
        for (int i = 0; i < 16; i++) {
            digits[at + i] = HEX[(int) (value >>> (60 - 4 * i)) & 15];
        }
    }

    private <T> T oneOf(T[] values) {
        return values[random.nextInt(values.length)];
    }

    private static String[] names(String prefix, int count) {
        String[] names = new String[count];
        for (int i = 0; i < count; i++) {
            names[i] = prefix + i;
        }
        return names;
    }

    private static InetSocketAddress address(int a, int b, int c, int d, int port) throws UnknownHostException {
        byte[] bytes = {(byte) a, (byte) b, (byte) c, (byte) d};
        return new InetSocketAddress(InetAddress.getByAddress(bytes), port);
    }
}
