import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*; // MessageExtBrokerInner is here up to 4.x, in common.message since 5.0

/**
 * Puts the messages of a file, one a line: topic, queueId, sysFlag, body, then name and value of each property, with tabs between.
 *
 * <p>-Dlines=FILE -Dcrash=BOOLEAN: die when all is dispatched, without a shutdown. The document is the status of each put.
 */
public final class PutLines {
    private static final int PROPERTIES_FROM = 4;

    private PutLines() {
    }

    public static void main(String[] arguments) {
        Program.run(PutLines::put);
    }

    private static Object put() throws Exception {
        DefaultMessageStore store = RealStore.open();
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        RealStore.start(store);
        List<String> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(Program.text("lines")), StandardCharsets.UTF_8)) {
            answers.add(store.putMessage(message(line.split("\t", -1))).getPutMessageStatus().name());
        }
        RealStore.awaitDispatch(store);
        store.flush();
        if (Program.flag("crash")) {
            Program.report(answers);
            Runtime.getRuntime().halt(Program.KILLED);
        }
        store.shutdown();
        return answers;
    }

    private static MessageExtBrokerInner message(String[] fields) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(fields[0]);
        message.setQueueId(Integer.parseInt(fields[1]));
        message.setSysFlag(Integer.parseInt(fields[2]));
        message.setBody(fields[3].getBytes(StandardCharsets.UTF_8));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress(InetAddress.getByName("10.1.2.3"), 40000));
        message.setStoreHost(new InetSocketAddress(InetAddress.getByName("192.168.7.9"), 10911));
        for (int at = PROPERTIES_FROM; at + 1 < fields.length; at += 2) {
            MessageAccessor.putProperty(message, fields[at], fields[at + 1]);
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }
}
