import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageFilter;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;

/** Loads the store of each broker.conf that a line of -Dconfs names, and answers the questions in CONF.questions: a line each, with tabs. */
public final class Ask {
    /** Stands for an offset where the store itself fails on a look-up. */
    private static final long LOOK_UP_FAILED = -9;

    private final DefaultMessageStore store;

    private Ask(DefaultMessageStore store) {
        this.store = store;
    }

    public static void main(String[] arguments) {
        Program.run(Ask::askAll);
    }

    private static Object askAll() throws Exception {
        List<Object> answers = new ArrayList<>();
        for (String conf : Files.readAllLines(Paths.get(Program.text("confs")), StandardCharsets.UTF_8)) {
            answers.add(ask(conf));
        }
        return answers;
    }

    private static Object ask(String conf) throws Exception {
        DefaultMessageStore store = RealStore.open(conf);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        RealStore.allowReading(store);
        Ask ask = new Ask(store);
        List<Object> answers = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(conf + ".questions"), StandardCharsets.UTF_8)) {
            answers.add(ask.answer(line.split("\t")));
        }
        return answers;
    }

    private Object answer(String[] words) throws Exception {
        switch (words[0]) {
            case "get":
                return get(words[1], (int) number(words[2]), number(words[3]), (int) number(words[4]), words[5]);
            case "time":
                return byTime(words[1], (int) number(words[2]), number(words[3]));
            case "query":
                return query(words[1], words[2], (int) number(words[3]), number(words[4]), number(words[5]));
            default:
                throw new IllegalArgumentException("no such question: " + words[0]);
        }
    }

    private Object get(String topic, int queueId, long offset, int maxMessages, String tags) throws Exception {
        GetMessageResult result = store.getMessage("rmqctl", topic, queueId, offset, maxMessages, filter(topic, tags));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", result.getStatus().name());
        answer.put("nextBeginOffset", result.getNextBeginOffset());
        answer.put("minOffset", result.getMinOffset());
        answer.put("maxOffset", result.getMaxOffset());
        answer.put("physicalOffsets", physicalOffsets(result.getMessageBufferList()));
        result.release();
        return answer;
    }

    private long byTime(String topic, int queueId, long timestamp) {
        try {
            return store.getOffsetInQueueByTime(topic, queueId, timestamp);
        } catch (RuntimeException failure) {
            return LOOK_UP_FAILED;
        }
    }

    private Object query(String topic, String key, int maxMessages, long begin, long end) {
        QueryMessageResult result = store.queryMessage(topic, key, maxMessages, begin, end);
        List<Object> answer = physicalOffsets(result.getMessageBufferList());
        result.release();
        return answer;
    }

    private static List<Object> physicalOffsets(List<ByteBuffer> records) {
        List<Object> offsets = new ArrayList<>();
        for (ByteBuffer record : records) {
            offsets.add(MessageDecoder.decode(record.duplicate(), false, false).getCommitLogOffset());
        }
        return offsets;
    }

    /** What a broker has for the client's subscription; its classes moved in 5.0, and 4.7 wants a group as well. */
    private static MessageFilter filter(String topic, String tags) throws Exception {
        Class<?> api;
        try {
            api = Class.forName("org.apache.rocketmq.common.filter.FilterAPI");
        } catch (ClassNotFoundException since50) {
            api = Class.forName("org.apache.rocketmq.remoting.protocol.filter.FilterAPI");
        }
        for (Method method : api.getMethods()) {
            if (method.getName().equals("buildSubscriptionData") && (method.getParameterCount() == 2 || takesGroup(method))) {
                Object[] arguments = {"rmqctl", topic, tags};
                Object data = method.invoke(null, Arrays.copyOfRange(arguments, 3 - method.getParameterCount(), 3));
                return (MessageFilter) DefaultMessageFilter.class.getConstructors()[0].newInstance(data);
            }
        }
        throw new NoSuchMethodException("buildSubscriptionData");
    }

    private static boolean takesGroup(Method method) {
        return method.getDeclaringClass().getName().contains(".common.");
    }

    private static long number(String word) {
        return Long.parseLong(word);
    }
}
