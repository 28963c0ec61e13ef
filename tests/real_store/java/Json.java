import java.io.IOException;
import java.util.Map;

/** Writes maps, lists, strings, numbers and booleans as JSON in ASCII. */
final class Json {
    private Json() {
    }

    static void write(Object value, Appendable out) throws IOException {
        if (value instanceof Map) {
            writeMap((Map<?, ?>) value, out);
        } else if (value instanceof Iterable) {
            writeList((Iterable<?>) value, out);
        } else if (value instanceof CharSequence) {
            writeString((CharSequence) value, out);
        } else if (value instanceof Number || value instanceof Boolean) {
            out.append(value.toString());
        } else {
            throw new IllegalArgumentException("no JSON for " + value);
        }
    }

    private static void writeMap(Map<?, ?> map, Appendable out) throws IOException {
        String separator = "";
        out.append('{');
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            out.append(separator);
            writeString((CharSequence) entry.getKey(), out);
            out.append(':');
            write(entry.getValue(), out);
            separator = ",";
        }
        out.append('}');
    }

    private static void writeList(Iterable<?> list, Appendable out) throws IOException {
        String separator = "";
        out.append('[');
        for (Object value : list) {
            out.append(separator);
            write(value, out);
            separator = ",";
        }
        out.append(']');
    }

    private static void writeString(CharSequence text, Appendable out) throws IOException {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
