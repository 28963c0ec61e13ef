import java.net.InetSocketAddress;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A name server and a broker over the store that -Dconf names, on the loopback ports -DnameServerPort and -DbrokerPort. */
final class RealBroker {
    static final String HOST = "127.0.0.1";
    static final String NAME = "broker-a";

    private static final long NEVER_MS = 1_000_000_000L;

    final String nameServer;
    final InetSocketAddress address;
    private BrokerController controller;

    private RealBroker(int nameServerPort, int port) {
        this.nameServer = HOST + ":" + nameServerPort;
        this.address = new InetSocketAddress(HOST, port);
    }

    /** Both, started; the process ends them when it ends. */
    static RealBroker start() throws Exception {
        // as their own main does: a name server takes no topics from a broker that does not say its version
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        // nobody here speaks TLS, and a certificate takes seconds to make
        System.setProperty(TlsSystemConfig.TLS_SERVER_MODE, "disabled");
        RealBroker broker = new RealBroker(Program.number("nameServerPort"), Program.number("brokerPort"));
        broker.startNameServer();
        broker.startBroker();
        return broker;
    }

    MessageStore store() {
        return controller.getMessageStore();
    }

    void createTopic(String topic, int queues) {
        controller.getTopicConfigManager().updateTopicConfig(new TopicConfig(topic, queues, queues, PermName.PERM_READ | PermName.PERM_WRITE));
        registerTopics();
    }

    /** Tells the name server of all topics, which the broker does by itself every 30 s. */
    void registerTopics() {
        controller.registerBrokerAll(true, false, true);
    }

    /** Ends the broker cleanly: all that it knows is on disk afterwards. */
    void shutdown() {
        controller.shutdown();
    }

    private void startNameServer() throws Exception {
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.parseInt(nameServer.substring(HOST.length() + 1)));
        NamesrvController controller = new NamesrvController(new NamesrvConfig(), server);
        if (!controller.initialize()) {
            throw new IllegalStateException("the name server does not start");
        }
        controller.start();
    }

    private void startBroker() throws Exception {
        BrokerConfig config = new BrokerConfig();
        Properties properties = RealStore.properties(Program.text("conf"));
        config.setBrokerName(NAME);
        config.setBrokerIP1(HOST);
        config.setBrokerIP2(HOST);
        config.setNamesrvAddr(nameServer);
        // a check would write: most stores' half messages have no producer here
        config.setTransactionCheckInterval(NEVER_MS);
        MixAll.properties2Object(properties, config);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(address.getPort());
        MessageStoreConfig store = RealStore.config();
        controller = new BrokerController(config, server, new NettyClientConfig(), store);
        if (!controller.initialize()) {
            throw new IllegalStateException("the broker does not load the store");
        }
        controller.start();
    }
}
