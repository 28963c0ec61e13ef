/** What only newer clients can do: timers and POP, by a class that is compiled for 5.x alone. */
interface NewerTraffic {
    void start(RealBroker broker, ClientLog log) throws Exception;

    void send(int number) throws Exception;

    /** How often the group that reads all is to get messages of TIMED_TOPIC. */
    int delivered();

    /** Consumes, and returns when all is consumed and acknowledged. */
    void finish() throws Exception;

    String TIMED_TOPIC = "timed";
    String POP_TOPIC = "popped";
    String POP_GROUP = "poppers";

    /** Null where the version has none. */
    static NewerTraffic find() throws ReflectiveOperationException {
        try {
            return (NewerTraffic) Class.forName("TimerAndPopTraffic").getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException before5) {
            return null;
        }
    }
}
