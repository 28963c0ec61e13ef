import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Starts a name server and a broker on a store and asks what mqadmin's consumerProgress asks, of each group that is a line of the file -Dgroups. */
public final class ConsumerProgress {
    private static final int ROUTE_POLL_MS = 50;

    private ConsumerProgress() {
    }

    public static void main(String[] arguments) {
        Program.run(ConsumerProgress::ask);
    }

    private static Object ask() throws Exception {
        RealBroker broker = RealBroker.start();
        return rows(broker, Files.readAllLines(Paths.get(Program.text("groups")), StandardCharsets.UTF_8));
    }

    /** A row a group and queue. */
    static List<Object> rows(RealBroker broker, List<String> groups) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt("progress");
        admin.setNamesrvAddr(broker.nameServer);
        admin.start();
        List<Object> rows = new ArrayList<>();
        for (String group : groups) {
            findByRetryTopic(group, broker, admin);
            admin.examineConsumeStats(group).getOffsetTable().forEach((queue, offsets) -> {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("group", group);
                row.put("topic", queue.getTopic());
                row.put("queueId", queue.getQueueId());
                row.put("brokerOffset", offsets.getBrokerOffset());
                row.put("consumerOffset", offsets.getConsumerOffset());
                rows.add(row);
            });
        }
        admin.shutdown();
        return rows;
    }

    /** mqadmin finds a group's brokers by its retry topic, which a broker's own groups lack. */
    private static void findByRetryTopic(String group, RealBroker broker, DefaultMQAdminExt admin) throws Exception {
        String topic = MixAll.getRetryTopic(group);
        boolean created = false;
        while (true) {
            try {
                admin.examineTopicRouteInfo(topic);
                return;
            } catch (MQClientException unknown) {
                if (!created) {
                    String address = RealBroker.HOST + ":" + broker.address.getPort();
                    admin.createAndUpdateTopicConfig(address, new TopicConfig(topic, 1, 1, 6));
                    created = true;
                }
                Thread.sleep(ROUTE_POLL_MS);
            }
        }
    }
}
