//! Plugins: what is loaded, and what guests do.

use super::codes;

codes! {
    NOT_WASM = "SM0701" "The file is not WebAssembly"
        means "It begins with other bytes than a component does: it is a text, a native program, or code that was compiled \
            already."
        kept "No lease was taken. In a worker that runs the version before goes on."
        next "Build it with `cargo build --release --target wasm32-wasip2`, and name the file that this writes."

    CORE_MODULE = "SM0702" "The file is a core module, and not a component"
        means "It was built for `wasm32-unknown-unknown` or `wasm32-wasip1`, which do not wrap modules as components."
        kept "No lease was taken. In a worker that runs the version before goes on."
        next "Build it for `wasm32-wasip2`, or wrap it with `wasm-tools component new` if it has the contract's bindings."

    BROKEN = "SM0703" "The file begins as WebAssembly and does not go on so"
        means "It was cut short, or damaged: a copy that was interrupted, as a rule."
        kept "No lease was taken. In a worker that runs the version before goes on; a file that is still being written is \
            waited for."
        next "Build it again or copy it again, and compare digests: `shardmill plugin inspect FILE` shows it."

    NOT_A_PROCESSOR = "SM0704" "The component is not a processor"
        means "It does not export the contract's interface `batch` or `columnar`, exports both, or has other types under \
            their names."
        kept "No lease was taken. In a worker that runs the version before goes on."
        next "Let it export one of the two, as `shardmill_guest::processor!` does. `shardmill plugin inspect FILE` shows what \
            it exports; the contract is in `wit/v0.1`."

    OTHER_VERSION = "SM0705" "The component is made for another version of the contract"
        means "It exports the contract's interface with a version that this host does not run."
        kept "No lease was taken. In a worker that runs the version before goes on."
        next "Build it with the kit of this version, or run it with the host that it was built for."

    NOT_GRANTED = "SM0706" "The plugin wants what it is not granted"
        means "It imports clocks, random numbers, HTTP or something else that the configuration does not allow, or that no \
            guest may have. The message has the line that grants each, where there is one."
        kept "Nothing of the plugin has run."
        next "Add the grants that you want it to have to `[processors.NAME.grants]`, or build it without those imports: \
            a dependency may bring them in."

    COMPILE = "SM0707" "The plugin cannot be compiled"
        means "Its code is not valid, or it uses a proposal of WebAssembly that this host does not have."
        kept "Nothing of the plugin has run. In a worker the version before goes on."
        next "Build it for `wasm32-wasip2` without the features that the message names (threads, for example)."

    TOO_LARGE = "SM0708" "The plugin is larger than it may be"
        means "The file has more bytes than `limits.plugin-size`, or more functions, instances or types than any guest \
            needs."
        kept "It was not compiled, and nothing of it has run."
        next "Strip it (`strip = true` in Cargo's profile), leave out what it does not need, or raise the limit."

    COMPILE_LIMITS = "SM0709" "Compiling the plugin takes more than it may"
        means "Compilation is bounded in time (`limits.compile-timeout`) and memory (`limits.compile-memory`), so that a \
            file cannot take the machine."
        kept "The compiler was ended. Leases and other processors were not touched."
        next "Raise that limit, or build the plugin of smaller functions. What is compiled once is taken from the cache."

    NO_COMPILER = "SM0710" "The machine could not compile the plugin"
        means "The process in which plugins are compiled could not be started, or ended without an answer: no memory, no \
            process left, or its program was replaced while it ran."
        kept "The plugin is not to blame, and the same file may be taken at another time."
        next "Look at the machine's memory and its limits on processes; try again."

    RUNTIME = "SM0711" "Plugins cannot be run on this machine"
        means "The WebAssembly engine did not start: address space, threads or instructions are missing that it needs."
        kept "No lease was taken."
        next "Raise `ulimit -v` and the limit on threads, or configure fewer threads for guests."

    INIT_REFUSED = "SM0712" "The plugin refuses its configuration"
        means "Its `init` has returned an error about `config`, which the message shows in the plugin's own words."
        kept "No lease was taken. In a worker that runs the version before goes on, with its own configuration."
        next "Correct `[processors.NAME] config` as the plugin says. `shardmill check` tries it without any service."

    TRAP = "SM0713" "The plugin crashed"
        means "It panicked, ran into `unreachable`, or touched memory that it does not have. The message has its last words."
        kept "Only its instance is lost. The batch is tried again, and the checkpoint stays before it; in the end \
            `failure.then` decides about its records."
        next "Find the record to blame: `failure.bisect` does in the worker, `shardmill plugin test` on your machine. \
            Mend the plugin and deploy it; a stopped shard goes on with `shardmill restart`."

    TIMEOUT = "SM0714" "The plugin takes longer than it may"
        means "A call went over its limit of wall time or of computing time: a loop that does not end, or too large a batch."
        kept "The instance is ended, nobody else waits for it, and leases are renewed meanwhile. The batch is tried again; \
            the checkpoint stays before it."
        next "Make batches smaller, raise `limits.batch-timeout` (`limits.start-timeout` for the start), or mend the loop."

    MEMORY = "SM0715" "The plugin wants more memory than it may have"
        means "Its memories and tables would have become larger than `limits.memory`."
        kept "Only its instance is lost. The batch is tried again, and the checkpoint stays before it."
        next "Raise the limit, make batches smaller, or see whether the plugin keeps what it should let go."

    INVALID_OUTCOME = "SM0716" "What the plugin returned cannot be carried out"
        means "It names a record outside the batch, an output that is not configured, a key that is none, or returns more \
            than it may. Outcomes are judged as a whole: carrying out the rest would be a guess."
        kept "Nothing of the outcome is done: no output is sent and the checkpoint stays. The batch is tried again."
        next "Correct the plugin, or add the output to the configuration. `shardmill plugin test` shows the same on your \
            machine."

    HOST_FAILED = "SM0717" "The host could not make the call"
        means "There was no instance for it, or the machine refused memory or a thread. No record is to blame."
        kept "It uses up no attempt of any record. The call is made again."
        next "If it lasts, look at the machine's memory and at `limits.instances`."

    GUEST_RETRY = "SM0718" "The plugin asks for another attempt"
        means "It returned an error that says that the same records may succeed later."
        kept "The checkpoint stays before the batch. It is handed over again after the time that the plugin asked for, \
            `retry.attempts` times in all."
        next "See what the plugin waits for; its own words are in the message."

    GUEST_REJECT = "SM0719" "The plugin rejects the batch"
        means "It returned an error that says that no attempt with these records can succeed."
        kept "The batch is not tried again as it is. `failure.then` decides about its records, and the checkpoint does not \
            pass them before that is done."
        next "Look at the records (dead letters have them in full), and mend the plugin or whoever writes them."

    GUEST_STOP = "SM0720" "The plugin stops the shard"
        means "It returned an error that says that nothing of this shard may go on before somebody has looked at it."
        kept "The shard stands with its lease and its last checkpoint; no other shard does."
        next "Do what the plugin's message asks for, then `shardmill restart PROCESSOR --shard ID`."

    HOST_ENTRY = "SM0721" "The text is no host that can be granted"
        means "Hosts are granted as `api.example.com`, `*.example.com` or an address, with a port if need be, and `http://` \
            before them where it is not `https`: no path, no user, no other scheme."
        kept "Nothing was granted and the start does not begin."
        next "Write the host alone. Addresses that are not public need `http.allow-private` besides."
}
