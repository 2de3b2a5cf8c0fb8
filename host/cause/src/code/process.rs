//! The process, and the machine that it runs on.

use super::codes;

codes! {
    ADMIN_PORT = "SM1101" "The admin server cannot listen on its address"
        means "Another process has the port, or the address is none of this machine."
        kept "No lease was taken: a worker that nobody can watch does not start."
        next "Set another address with `[admin] listen` (port 0 takes a free one), stop what listens there, or say \
            `enabled = false`."

    BROKE_DOWN = "SM1102" "Part of Shardmill broke down"
        means "A task has panicked. This is a mistake of Shardmill, not of the configuration or a plugin."
        kept "Checkpoints are what was done before. Other workers take the leases when they expire."
        next "Please report it, with the log and `RUST_BACKTRACE=1`."

    UNDONE = "SM1103" "A run that ends by itself leaves something undone"
        means "With `--until-idle` or `--max-records` everything else is done, and shards are stopped or streams are gone. \
            The message has a sentence for each."
        kept "What is done is checkpointed and leases are released. Stopped shards stand at their last checkpoints."
        next "Mend what the sentences name, and run the same command again: it goes on where it was."

    LETTERS_FOLDER = "SM1104" "Dead letters cannot be kept in their folder"
        means "The folder cannot be made or written, another worker's file is in the way, or it lies on a full disk."
        kept "No lease was taken, so no record was given up without a place for its letter."
        next "Correct `folder` in `[processors.NAME.dead-letters]`, or let this process write there."

    MACHINE = "SM1105" "The machine refuses something that every process needs"
        means "No thread could be started, or no signal handler set: limits of the container or of the user are too low."
        kept "Nothing has started."
        next "Raise the limit on processes and threads (`ulimit -u`, or the container's `pids` limit)."

    LOCAL_PORT = "SM1106" "The local backend cannot listen on its port"
        means "Another process, such as an earlier backend, has the port for Kinesis or DynamoDB."
        kept "Nothing was started, and what listens there was not disturbed."
        next "Stop what listens there, or choose another port; 0 takes a free one."
}
