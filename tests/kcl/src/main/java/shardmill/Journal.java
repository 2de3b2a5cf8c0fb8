package shardmill;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The file of what was processed, one line a record: shard, sequence number, sub-sequence number, payload; by tabs. */
final class Journal {
    private final BufferedWriter file;

    Journal(Path path) throws IOException {
        file = Files.newBufferedWriter(path, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    synchronized void append(String shard, String sequenceNumber, long subSequenceNumber, String payload) {
        try {
            file.write(shard + '\t' + sequenceNumber + '\t' + subSequenceNumber + '\t' + payload + '\n');
        } catch (IOException exception) {
            throw new UncheckedIOException(exception);
        }
    }

    /** Hands what was appended to the system, which keeps it even if this process is killed. */
    synchronized void flush() {
        try {
            file.flush();
        } catch (IOException exception) {
            throw new UncheckedIOException(exception);
        }
    }
}
