//! Commands.

use super::codes;

codes! {
    USAGE = "SM1201" "The command line asks for what cannot be"
        means "An option is unknown, has a value that it does not take, or does not go with another one."
        kept "Nothing was done: the command line is judged before anything else."
        next "Read the message; `shardmill COMMAND --help` has all options with examples."

    INTERRUPTED = "SM1202" "The command was interrupted"
        means "Ctrl-C or SIGTERM came before its end, so it has stopped where it was."
        kept "What was done by then stays done, and the message says how much that is. Nothing is half done."
        next "The same command again goes on or begins anew, as its message says."

    NOT_WRITTEN = "SM1203" "Something cannot be written"
        means "Standard output, or a file that the command was to write, does not take what is written: no room, no right, or \
            nobody reads it."
        kept "What the command had done by then stays done, which its last words tell."
        next "Make room, name another place, or let this user write there."

    NOT_ASKED = "SM1204" "Nobody says yes"
        means "The command would delete something and asks first, and there is no terminal to ask, or the answer was no."
        kept "Nothing was deleted."
        next "Say `--yes` where nobody can be asked, as in scripts."

    ANSWER = "SM1205" "An answer makes no sense"
        means "What answered is not what was expected there: another program at the address, or another version of this one."
        kept "Whether the order was carried out is not known; a look at the status tells."
        next "Check the address, and that worker and command are of the same version."

    UNREACHABLE = "SM1206" "The worker's admin server cannot be reached"
        means "Nothing listens at the address, or it does not answer in time."
        kept "Nothing was ordered."
        next "Name the admin server with `--admin URL`: the worker's log says where it listens, `127.0.0.1:9465` as a rule."

    ADMIN_ADDRESS = "SM1207" "The text is not the address of an admin server"
        means "An address such as `http://127.0.0.1:9465` is expected, and what was given is none, or its path cannot be \
            asked for."
        kept "Nothing was asked and nothing was ordered."
        next "Correct `--admin`, or the variable SHARDMILL_ADMIN."

    TOKEN = "SM1208" "The worker does not take the command without its token"
        means "Commands change what a worker does, so it takes them only with the token that its `[admin]` names; none was \
            sent, or another one, or one that cannot be read."
        kept "Nothing was changed."
        next "Name the token's file with `--token-file FILE`, or set SHARDMILL_ADMIN_TOKEN."

    NOT_DONE = "SM1209" "The worker has not done all that was asked for"
        means "It has no such processor or shard, or a shard is in a state in which the order means nothing. The lines above \
            tell of each shard."
        kept "Shards that are not named as done are as they were, with their checkpoints."
        next "Look at `shardmill status`; a shard that another worker has is ordered there."

    STREAM_CHANGE = "SM1210" "The stream cannot be changed so"
        means "A shard is closed, takes one key alone, or does not lie beside the other; the stream is there already, is \
            on-demand, or is being changed at this moment."
        kept "The stream is as it was."
        next "`shardmill stream describe STREAM` shows its shards, their keys and its state."

    NO_SHARD = "SM1211" "The stream has no such shard"
        means "The stream does not list a shard of this id: it was mistyped, or its records are out of retention."
        kept "Nothing was read or changed."
        next "Copy the id from `shardmill stream describe STREAM`."

    REFUSED_BY_WORKER = "SM1212" "The worker does not take what was sent"
        means "The configuration or the plugin that it was to take is not good; the message has its reason."
        kept "The worker goes on with what it had."
        next "Correct it: `shardmill check` and `shardmill plugin test` say the same on your machine."

    RECORDS_FAIL = "SM1213" "The plugin does not do what was expected of it"
        means "Records failed, or what came out is not what the expectations say, or a build failed before."
        kept "Nothing was sent anywhere: this is a trial without a stream."
        next "The lines above tell of each record. Correct the plugin or what is expected."

    FAILED = "SM1214" "The command has failed"
        means "Something outside of the command failed while it ran; the message says what."
        kept "What was done before that stays done. Nothing is called done that is not."
        next "Mend what the message names, and give the command again."

    EXISTS = "SM1215" "Something is in the way"
        means "A folder that was to be made has something in it, or a file of the name is there already."
        kept "What is there was not changed."
        next "Name another place, or clear this one yourself."

    NO_SUCH = "SM1216" "There is nothing of that name"
        means "The configuration, the spool or the stream has nothing of the name that was given."
        kept "Nothing was done."
        next "Take one of the names that the message lists."

    KIT = "SM1217" "There is no kit for processors there"
        means "A new crate depends on the crate `shardmill-guest`, and the folder that was named for it does not have it."
        kept "Nothing was written."
        next "Name the folder of `guest-sdk/rust` in a copy of the sources."

    BASELINE = "SM1218" "There are no figures to compare with"
        means "A benchmark's baseline cannot be read, or there are no records to measure with."
        kept "Nothing was measured and no file was written."
        next "Write a baseline first, as `shardmill plugin bench --help` shows."

    SERVICE = "SM1219" "The service refuses the command, or does not know it"
        means "Kinesis, or what stands in for it, does not carry the call out: a limit of the account, a stream that is being \
            changed, or a program that lacks the call."
        kept "The stream is as it was; the message says so where it is not."
        next "Follow the service's words in the message; wait if the stream is being changed."
}
