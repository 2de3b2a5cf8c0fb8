package shardmill;

import java.nio.charset.StandardCharsets;
import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** Writes the records of a shard down, and checkpoints only what the file has. */
final class Processor implements ShardRecordProcessor {
    private final Options options;
    private final Journal journal;
    private final Stop stop;

    private String shard;
    private long processed;
    /** The last record that was processed. */
    private KinesisClientRecord last;

    Processor(Options options, Journal journal, Stop stop) {
        this.options = options;
        this.journal = journal;
        this.stop = stop;
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = input.shardId();
        System.err.println(shard + " from " + input.extendedSequenceNumber());
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        for (KinesisClientRecord record : input.records()) {
            if (processed == options.limitOf(shard)) {
                // Alive, with its lease renewed, and no further.
                awaitStop(input.checkpointer());
            }
            if (stop.isRequested()) {
                // What is left is for whoever comes next.
                return;
            }
            String payload = StandardCharsets.UTF_8.decode(record.data()).toString();
            journal.append(shard, record.sequenceNumber(), record.subSequenceNumber(), payload);
            processed += 1;
            last = record;
            if (processed % options.checkpointEvery() == 0) {
                checkpoint(input.checkpointer());
            }
        }
        journal.flush();
    }

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {
        checkpoint(input.checkpointer());
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        journal.flush();
        try {
            input.checkpointer().checkpoint();
        } catch (InvalidStateException | ShutdownException exception) {
            throw new IllegalStateException(exception);
        }
        System.err.println(shard + " has ended");
    }

    @Override
    public void leaseLost(LeaseLostInput input) {
        System.err.println(shard + " is lost");
    }

    private void checkpoint(RecordProcessorCheckpointer checkpointer) {
        journal.flush();
        if (last == null) {
            return;
        }
        try {
            checkpointer.checkpoint(last.sequenceNumber(), last.subSequenceNumber());
        } catch (InvalidStateException | ShutdownException exception) {
            // The lease is somebody else's now: so is the checkpoint.
            System.err.println(shard + " is not checkpointed: " + exception);
        }
    }

    /** The first half of a checkpoint in two phases, as an application does that commits elsewhere in between. */
    private void prepare(RecordProcessorCheckpointer checkpointer) {
        if (last == null) {
            return;
        }
        try {
            byte[] state = "prepared".getBytes(StandardCharsets.UTF_8);
            checkpointer.prepareCheckpoint(last.sequenceNumber(), last.subSequenceNumber(), state);
        } catch (InvalidStateException | ShutdownException exception) {
            System.err.println(shard + " has no prepared checkpoint: " + exception);
        }
    }

    private void awaitStop(RecordProcessorCheckpointer checkpointer) {
        journal.flush();
        prepare(checkpointer);
        System.err.println(shard + " is at its limit");
        try {
            stop.await();
        } catch (InterruptedException exception) {
            Thread.currentThread().interrupt();
        }
    }
}
