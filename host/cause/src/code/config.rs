//! The configuration.

use super::codes;

codes! {
    UNREADABLE = "SM1001" "The configuration's file cannot be read"
        means "It is not there, may not be read, is a folder or a device, or is larger than 4 MiB."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Name a readable TOML file with `--config FILE` or SHARDMILL_CONFIG."

    SYNTAX = "SM1002" "The configuration is not TOML"
        means "A quote or a bracket is not closed, a key stands twice, or a line is none of TOML's. The message has the \
            place."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Correct the line. Texts stand in quotes, tables begin with `[name]`, and a key stands once in its table."

    UNKNOWN_KEY = "SM1003" "The configuration has a key that means nothing"
        means "A key was mistyped, or stands in the wrong table. Unknown keys are refused, because one that is passed over \
            would leave a default in its place without a word."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Take one of the keys that the message lists. `docs/configuration.md` has all of them, by table."

    WRONG_TYPE = "SM1004" "A value has the wrong type"
        means "A text stands where a number, a list or a table is expected, or the other way round; or a word that is none \
            of those that are allowed."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Write it as the message says. Durations and sizes are texts in quotes: `\"30s\"`, `\"4 MiB\"`."

    OUT_OF_BOUNDS = "SM1005" "A value is out of its bounds"
        means "Each number, duration and size has a least and a most, which the message gives."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Choose a value within the bounds. If it stands in `[defaults]`, it is meant for many sections."

    NOT_A_NAME = "SM1006" "A text is no name, or no address"
        means "Names of processors, streams and tables become parts of requests, metrics and messages, so what they may \
            hold is bounded; addresses and endpoints have a form."
        kept "Nothing has started, and no service was asked."
        next "Use letters, digits, `_`, `.` and `-`, as the message says; an address with its port, an endpoint as a URL."

    TOGETHER = "SM1007" "Two settings do not go together"
        means "Each of them is fine alone, and one says the opposite of the other, or has no meaning beside it."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Leave one of the two out. The message names both, and says why."

    MISSING = "SM1008" "Something is not said that has to be said"
        means "A required key is missing, or is empty, or another setting needs one that is not there."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Add what the message names. `shardmill plugin new` writes a small configuration that is whole."

    NO_SUCH = "SM1009" "The configuration names what is not there"
        means "It refers to a processor, an output or a section that it does not define: a slip of the pen, as a rule."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Correct the name: the message has the nearest one, or all of them."

    TWICE = "SM1010" "Something is named twice"
        means "Two things have one name, one table or one stream, so that they would share what each needs alone."
        kept "Nothing has started. No lease table was written by two."
        next "Give each its own, with the key that the message names."

    FILE = "SM1011" "A file that the configuration names cannot be read"
        means "A plugin, trial records, or a token is not there, is a folder, or may not be read. Paths are relative to the \
            configuration's folder."
        kept "Nothing has started. A worker that runs keeps the configuration and the plugins that it has."
        next "Build the plugin, correct the path, or let this user read the file."

    PIPELINE = "SM1012" "Processors do not follow each other as they are written"
        means "A processor that reads no stream gets its records from an output of another one. Here none leads to it, or \
            one promises what those behind it cannot keep."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Follow the message; `shardmill check --graph` draws what goes where, once it is good."

    NO_REGION = "SM1013" "No AWS region is set"
        means "Neither the configuration nor the command, the environment or the profile says in which region the stream is."
        kept "No service was asked."
        next "Set `region` in `[aws]`, say `--region`, or set AWS_REGION or a profile that has one."

    GRANT_MISSING = "SM1014" "What a plugin is granted is not there"
        means "A variable of the environment is not set or is no text, or a secret's file cannot be read, or holds nothing \
            that could be a secret."
        kept "The plugin was not started, and no value is shown anywhere. In a worker that runs the version before goes on \
            with the values that it has."
        next "Set the variable, or put the secret into its file: one text of 4 bytes to 64 KiB. Files are read again at each \
            reload; the environment of a process never changes."

    LOG_FILTER = "SM1015" "The text is no filter of the log"
        means "A level is expected (`error`, `warn`, `info`, `debug`, `trace`), or directives such as \
            `info,shardmill_lease=debug`."
        kept "Nothing has started. A worker that runs keeps its filter."
        next "Correct `[log] filter`, or the variable RUST_LOG, which takes its place."

    NOT_UTF8 = "SM1016" "The configuration is not UTF-8"
        means "The file has a byte that no text in UTF-8 has: it was saved in another encoding, such as Latin-1."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Save the file as UTF-8; the message has the line and the byte."

    GRANT = "SM1017" "Something is granted that cannot be"
        means "A name of a variable, a method, a network or a value in `grants` is none, or is one that no guest may have."
        kept "Nothing was granted and nothing has started."
        next "Follow the message; `docs/plugins.md` says what a guest may do and what grants it."

    TOKEN = "SM1018" "There is no token for commands"
        means "The token's file cannot be read, its variable is not set, or what it holds is no token: 16 to 4096 visible \
            ASCII characters."
        kept "Nothing has started: a worker never takes commands without a token."
        next "Write one with `openssl rand -hex 32`, readable for this user alone."

    NOT_A_FIELD = "SM1019" "The text is no pointer to a field"
        means "A field of a JSON body is named by a JSON pointer, such as `/customer/id`, which begins with `/`."
        kept "Nothing has started. A worker that runs keeps the configuration that it has."
        next "Write the way to the field from the body's top, with `/` before each step."
}
