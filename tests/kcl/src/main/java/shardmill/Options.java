package shardmill;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * What the command line says: {@code --NAME VALUE}, every name but {@code --limit} once.
 *
 * @param application the application's name, which is that of its lease table
 * @param stream the stream's name
 * @param worker the worker's id
 * @param journal the file to which processed records are appended
 * @param checkpointEvery after so many records of a shard its checkpoint is written
 * @param failoverMillis how long a lease lasts without renewal
 * @param limit {@code --limit N}: so many records of each shard are processed, and no more
 * @param limits {@code --limit SHARD=N}: the same for one shard
 */
record Options(
        String application,
        String stream,
        String worker,
        Path journal,
        int checkpointEvery,
        long failoverMillis,
        long limit,
        Map<String, Long> limits) {

    static Options parse(String[] arguments) {
        Map<String, String> values = new HashMap<>();
        Map<String, Long> limits = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            String name = arguments[index];
            String value = arguments[index + 1];
            int equals = value.indexOf('=');
            if (name.equals("--limit") && equals > 0) {
                limits.put(value.substring(0, equals), Long.parseLong(value.substring(equals + 1)));
            } else if (values.put(name, value) != null) {
                throw new IllegalArgumentException(name + " is there twice");
            }
        }
        Options options = new Options(
                required(values, "--application"),
                required(values, "--stream"),
                required(values, "--worker"),
                Path.of(required(values, "--journal")),
                Integer.parseInt(required(values, "--checkpoint-every")),
                Long.parseLong(required(values, "--failover-millis")),
                values.containsKey("--limit") ? Long.parseLong(values.remove("--limit")) : Long.MAX_VALUE,
                Map.copyOf(limits));
        if (!values.isEmpty() || arguments.length % 2 != 0) {
            throw new IllegalArgumentException("unknown: " + String.join(" ", arguments));
        }
        return options;
    }

    /** How many records of a shard are processed. */
    long limitOf(String shard) {
        return limits.getOrDefault(shard, limit);
    }

    private static String required(Map<String, String> values, String name) {
        String value = values.remove(name);
        if (value == null) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return value;
    }
}
