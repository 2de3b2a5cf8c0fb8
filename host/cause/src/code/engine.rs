//! Processing: consumers, shards, outputs.

use super::codes;

codes! {
    OTHER_STREAM = "SM0801" "The lease table holds the checkpoints of another stream"
        means "The table was made for a stream with another ARN. Its checkpoints would say where to begin in a stream that \
            has other records."
        kept "Nothing was written, and no record was read."
        next "Name another table (`lease-table`) or another `application`; or delete the table and the one beside it whose \
            name ends in `-shardmill`, if the old checkpoints are not wanted any more."

    OTHER_FORM = "SM0802" "The lease table has keys of another form"
        means "A processor with `stream` has leases by shard, one with `streams` has the KCL's multi-stream keys. The form is \
            the table's for good, and this configuration asks for the other one."
        kept "Nothing was written, and no record was read."
        next "Name another table (`lease-table`), or go back to the form that the table has."

    SAME_STREAMS = "SM0803" "Two streams cannot be read by one consumer"
        means "Both would have the same lease keys, so that their checkpoints could not be told apart."
        kept "Nothing was written, and no record was read."
        next "Give each of them a processor of its own."

    STOPPED = "SM0804" "The failure policy has stopped the worker"
        means "A record could not be processed, and `failure.then` is `stop-worker` or `stop-process`."
        kept "Shards were drained and checkpointed as far as they were done, and leases released. The record stands behind its \
            shard's checkpoint, so nothing is lost."
        next "Mend what the message says, and start again: it begins at the last checkpoints. Or choose `skip` or \
            `dead-letter`."

    NO_ARN = "SM0805" "The stream's description has no ARN that can be read"
        means "Keys of leases of many streams are made of ARNs, and what answered gave something else for one."
        kept "Nothing was written, and no record was read."
        next "Check what answers at the endpoint: a program that imitates Kinesis, perhaps."

    OUTPUT_REFUSED = "SM0806" "Outputs cannot be sent"
        means "The stream of an output refuses records for a reason that does not pass by itself, such as a missing \
            permission."
        kept "The checkpoint stays before the records that caused the outputs. Outputs that were acknowledged may be sent \
            once more."
        next "Mend the reason, then `shardmill restart PROCESSOR`."

    LETTERS_REFUSED = "SM0807" "Dead letters cannot be stored"
        means "The folder, stream or output for dead letters does not take them."
        kept "The record counts as given up only when its letter is stored: until then the checkpoint stays before it."
        next "Make room, or let this process write there; for a stream, grant `kinesis:PutRecords`. Then \
            `shardmill restart PROCESSOR`."

    BROKEN = "SM0808" "Part of the process broke down"
        means "A task has panicked, which is a mistake of Shardmill itself."
        kept "If it was a shard's, its checkpoint is what is done, and another worker takes the lease when it expires. What looks \
            for new shards is started again."
        next "Please report it, with the log and `RUST_BACKTRACE=1`."

    TOLERANCE = "SM0809" "The text is no share of a batch"
        means "A tolerance is a percentage in quotes from `\"0%\"` to `\"100%\"`, with four digits after the point at most."
        kept "Nothing has started. A worker that runs keeps the value it has."
        next "Write it such as `\"0.25%\"`, with its sign and in quotes."

    SHARD_STOPPED = "SM0810" "The failure policy has stopped a shard"
        means "A record or a batch failed in all attempts, and `failure.then` is `stop-shard`, which is the default. The \
            reason is in the message, and in `/readyz` and `/status`."
        kept "Its lease is held and its last checkpoint kept, so nothing is passed over; every other shard goes on."
        next "Mend the cause, deploy a mended plugin if it is the plugin, then `shardmill restart PROCESSOR --shard ID`. \
            `failure.then = \"dead-letter\"` keeps such records aside in future."
}
