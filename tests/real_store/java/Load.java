import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Loads a store, which recovers it, and with -Dstart=true starts it and dispatches to the end; says how long that took and what it came to. */
public final class Load {
    private Load() {
    }

    public static void main(String[] arguments) {
        Program.run(Load::load);
    }

    private static Object load() throws Exception {
        DefaultMessageStore store = RealStore.open();
        OperatingSystemMXBean system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        long cpuBegin = system.getProcessCpuTime();
        long begin = System.nanoTime();
        boolean loaded = store.load();
        if (loaded && Program.flag("start")) {
            RealStore.start(store);
        }
        double seconds = Program.secondsSince(begin);
        double cpuSeconds = (system.getProcessCpuTime() - cpuBegin) / 1e9;

        Map<String, Object> document = new LinkedHashMap<>();
        document.put("loaded", loaded);
        document.put("seconds", seconds);
        document.put("cpuSeconds", cpuSeconds);
        document.put("minPhyOffset", store.getMinPhyOffset());
        document.put("maxPhyOffset", store.getMaxPhyOffset());
        document.put("queues", queues(store));
        return document;
    }

    private static List<Object> queues(DefaultMessageStore store) throws Exception {
        List<Object> documents = new ArrayList<>();
        for (QueueRange range : QueueRange.all(store)) {
            documents.add(range.document());
        }
        return documents;
    }
}
