//! Mistakes of an operator, a line each. Those that need a file, a plugin or a service are in the end-to-end tests.

use super::*;

/// A name; a configuration that is wrong, where `MINIMAL` stands for one that is not; the line of the mistake, 0 for none;
/// and what has to be said.
type Mistake = (&'static str, &'static str, usize, &'static [&'static str]);

const MISTAKES: &[Mistake] = &[
    // === TOML ===
    ("nothing at all", "", 0, &["application"]),
    ("a text without an end", "application = \"app\nMINIMAL", 1, &["string"]),
    ("a value that is missing", "application = ", 1, &[]),
    ("a key without a value", "application\n", 1, &[]),
    ("a table without an end", "application = \"app\"\n[streams.in\n", 2, &[]),
    ("a NUL", "application = \"a\0pp\"\n", 1, &[]),
    ("a key twice", "MINIMALplugin = \"q.wasm\"\n", 5, &["duplicate", "plugin"]),
    ("a table twice", "MINIMAL[processors.p]\n", 5, &["duplicate", "p"]),
    ("an output twice", "MINIMALOUTPUT[processors.p.outputs.out]\nstream = \"b\"\n", 7, &["duplicate", "out"]),
    ("a processor twice", "MINIMAL[streams.s]\n[processors.p]\n", 6, &["duplicate", "p"]),
    // === keys ===
    ("an unknown key", "MINIMAL[leases]\nrenw = \"3s\"\n", 6, &["renw", "renew", "expiry"]),
    ("an unknown table", "application = \"app\"\n[lease]\n", 2, &["lease", "leases", "processors"]),
    ("an unknown key of a processor", "MINIMALbtach = 1\n", 5, &["btach", "batch", "retry"]),
    ("an unknown key of a batch", "MINIMALbatch = { recrods = 1 }\n", 5, &["recrods", "records", "bytes", "wait"]),
    ("an unknown key of a prefetch", "MINIMALprefetch = { page = 1 }\n", 5, &["page", "pages", "records", "bytes"]),
    ("an unknown key of an output", "MINIMALOUTPUTorder = \"key\"\n", 7, &["order", "ordering", "aggregate"]),
    ("an unknown key of a stream", "MINIMAL[streams.in]\nidel = \"1s\"\n", 6, &["idel", "idle", "start"]),
    ("an unknown key of the defaults", "MINIMAL[defaults.processors]\n", 5, &["processors", "processor", "output"]),
    ("a key of Kinesis in [aws]", "MINIMAL[aws]\nendpoint = \"http://x\"\n", 6, &["endpoint", "kinesis-endpoint"]),
    ("no application", "[processors.p]\nstream = \"in\"\nplugin = \"p.wasm\"\n", 0, &["application"]),
    ("no stream", "application = \"app\"\n[processors.p]\nplugin = \"p.wasm\"\n", 2, &["stream"]),
    ("no plugin", "application = \"app\"\n[processors.p]\nstream = \"in\"\n", 2, &["plugin"]),
    ("an output without a stream", "MINIMAL[processors.p.outputs.out]\n", 5, &["stream"]),
    ("no processors", "application = \"app\"\n", 0, &["no processor", "[processors.NAME]"]),
    (
        "an unknown key of the watchdog",
        "MINIMAL[watchdog]\nstall = \"1m\"\n",
        6,
        &["stall", "stall-after", "lag-alarm"],
    ),
    (
        "two tokens",
        "MINIMAL[admin]\ntoken-file = \"t\"\ntoken-env = \"T\"\n",
        7,
        &["admin.token-env", "`token-file`", "one of them"],
    ),
    ("an unknown key of what is read again", "MINIMAL[reload]\nwach = false\n", 6, &["wach", "watch"]),
    ("an unknown key of a processor's reload", "MINIMALreload = { trail = \"t\" }\n", 5, &["trail", "trial"]),
    ("a trial in no file", "MINIMALreload = { trial = \"\" }\n", 5, &["processors.p.reload.trial", "no file"]),
    ("a token in no file", "MINIMAL[admin]\ntoken-file = \"\"\n", 6, &["admin.token-file", "no file"]),
    ("a token in no variable", "MINIMAL[admin]\ntoken-env = \"\"\n", 6, &["admin.token-env", "empty"]),
    (
        "a longest wait that is shorter than the shortest",
        "MINIMAL[streams.in]\nidle = \"3s\"\nidle-max = \"2s\"\n",
        7,
        &["streams.in.idle-max", "3s to 5m", "`idle`"],
    ),
    // === types ===
    ("a number for a text", "application = 7\n", 1, &["application", "7", "string"]),
    ("a text for a number", "MINIMALbatch = { records = \"many\" }\n", 5, &["many", "whole number"]),
    ("a fraction", "MINIMALbatch = { records = 1.5 }\n", 5, &["1.5", "whole number"]),
    ("a number for a duration", "MINIMALcheckpoint-interval = 5\n", 5, &["5", "duration", "unit", "500ms"]),
    ("an unknown decoder", "MINIMAL[streams.in]\ndecoder = \"fast\"\n", 6, &["fast", "json", "cbor", "sdk"]),
    ("an unknown unit", "shutdown-timeout = \"3 parsecs\"\nMINIMAL", 1, &["3 parsecs", "duration", "500ms"]),
    ("a word for a duration", "MINIMALcheckpoint-interval = \"soon\"\n", 5, &["soon", "500ms"]),
    ("a word for a size", "memory = \"much\"\nMINIMAL", 1, &["much", "64 MiB"]),
    ("a word for a truth", "MINIMALgrants = { clocks = \"yes\" }\n", 5, &["yes", "boolean"]),
    ("a text for a table", "MINIMALbatch = \"large\"\n", 5, &["large"]),
    ("a list of processors", "application = \"app\"\nprocessors = [\"p\"]\n", 2, &["map"]),
    (
        "no limit on requests",
        "MINIMALOUTPUTmax-requests = 0\n",
        7,
        &["processors.p.outputs.out.max-requests", "0", "1 to 256"],
    ),
    (
        "a longest back-off that is shorter than the shortest",
        "MINIMALOUTPUTbackoff-min = \"3s\"\nbackoff-max = \"2s\"\n",
        8,
        &["outputs.out.backoff-max", "2s is out of bounds", "3s to 10m", "`backoff-min`"],
    ),
    (
        "requests of outputs in the defaults that are too small",
        "MINIMALOUTPUT[defaults.output]\nrequest-max-bytes = \"1 KiB\"\n",
        8,
        &["defaults.output.request-max-bytes", "64 KiB to 10 MiB"],
    ),
    ("a time to live of an output", "MINIMALOUTPUTrecord-ttl = \"1m\"\n", 7, &["record-ttl", "request-timeout"]),
    ("an ordering", "MINIMALOUTPUTordering = \"strict\"\n", 7, &["strict", "key", "none"]),
    ("an answer to records out of range", "MINIMALout-of-range = \"skip\"\n", 5, &["skip", "deliver", "drop"]),
    ("a form of the log", "MINIMAL[log]\nformat = \"xml\"\n", 6, &["xml", "human", "json"]),
    ("a start position", "MINIMAL[streams.in]\nstart = \"LATEST\"\n", 6, &["LATEST", "trim-horizon", "latest"]),
    ("a reset", "MINIMAL[streams.in]\nreset = \"oldest\"\n", 6, &["oldest", "earliest", "latest", "fail"]),
    ("a start in seconds", "MINIMAL[streams.in]\nstart = 1790000000\n", 6, &["1790000000", "1000"]),
    ("a start before 1970", "MINIMAL[streams.in]\nstart = -1\n", 6, &["-1", "1970"]),
    ("a shard's start", "MINIMAL[streams.in.start-shards]\ns = { at = \"first\" }\n", 6, &["first", "digits"]),
    ("a shard's start twice", "MINIMAL[streams.in.start-shards]\ns = { at = \"1\", after = \"1\" }\n", 6, &["at"]),
    // === names ===
    ("an empty application", "application = \"\"\n", 1, &["application", "``", "letters"]),
    ("an application with a space", "application = \"my app\"\n", 1, &["application", "my app", "letters"]),
    ("an application in two lines", "application = \"a\\nb\"\n", 1, &["application", "a\\nb", "letters"]),
    ("an empty processor", "application = \"a\"\n[processors.\"\"]\nstream = \"s\"\nplugin = \"p\"\n", 2, &["letters"]),
    (
        "a processor with a slash",
        "application = \"a\"\n[processors.\"a/b\"]\nstream = \"s\"\nplugin = \"p\"\n",
        2,
        &["a/b"],
    ),
    ("an empty output", "MINIMAL[processors.p.outputs.\"\"]\nstream = \"x\"\n", 5, &["letters"]),
    ("an output with a space", "MINIMAL[processors.p.outputs.\"a b\"]\nstream = \"x\"\n", 5, &["a b", "letters"]),
    (
        "an empty stream",
        "MINIMAL[processors.q]\nstream = \"\"\nplugin = \"p\"\n",
        6,
        &["processors.q.stream", "1 to 128"],
    ),
    ("a stream with a space", "MINIMALOUTPUT[streams.\"my stream\"]\n", 7, &["my stream", "letters"]),
    ("a stream's empty name", "MINIMAL[streams.in]\nname = \"\"\n", 6, &["streams.in.name", "1 to 128"]),
    ("a stream's name", "MINIMAL[streams.unused]\nname = \"a:b\"\n", 6, &["streams.unused.name", "a:b"]),
    ("a stream without a name", "MINIMAL[streams.\"\"]\nname = \"x\"\n", 5, &["empty"]),
    (
        "an ARN of another service",
        "MINIMAL[streams.in]\narn = \"arn:aws:dynamodb:us-east-1:123456789012:table/in\"\n",
        6,
        &["streams.in.arn", "arn:aws:dynamodb", "arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"],
    ),
    (
        "the ARN of a consumer",
        "MINIMAL[streams.in]\narn = \"arn:aws:kinesis:us-east-1:123456789012:stream/in/consumer/app:1700000000\"\n",
        6,
        &["streams.in.arn", "a consumer of a stream", "`arn:aws:kinesis:us-east-1:123456789012:stream/in`"],
    ),
    (
        "an ARN and another name",
        "MINIMAL[streams.in]\nname = \"in\"\narn = \"arn:aws:kinesis:us-east-1:123456789012:stream/other\"\n",
        7,
        &["streams.in.arn", "`other`", "`in`", "leave `name` out"],
    ),
    (
        "an output to an ARN with a region missing",
        "MINIMAL[processors.p.outputs.out]\nstream = \"arn:aws:kinesis::123456789012:stream/out\"\n",
        6,
        &["outputs.out.stream", "not a stream's ARN"],
    ),
    ("a stream and streams", "MINIMALstreams = [\"in\"]\n", 5, &["processors.p.streams", "`stream`", "another"]),
    (
        "an empty list of streams",
        "application = \"app\"\n[processors.p]\nstreams = []\nplugin = \"p.wasm\"\n",
        3,
        &["processors.p.streams", "no stream"],
    ),
    (
        "a stream twice in a list",
        "application = \"app\"\n[processors.p]\nstreams = [\"a\", \"b\", \"a\"]\nplugin = \"p.wasm\"\n",
        3,
        &["processors.p.streams", "`a` is named twice"],
    ),
    (
        "a stream of a list",
        "application = \"app\"\n[processors.p]\nstreams = [\"a\", \"b c\"]\nplugin = \"p.wasm\"\n",
        3,
        &["processors.p.streams", "b c", "1 to 128"],
    ),
    (
        "an ARN as a name",
        "MINIMAL[streams.in]\nname = \"arn:aws:kinesis:us-east-1:1:stream/a\"\n",
        6,
        &["arn:aws", "letters"],
    ),
    (
        "the stream of an output",
        "MINIMAL[processors.p.outputs.out]\nstream = \"a/b\"\n",
        6,
        &["outputs.out.stream", "a/b"],
    ),
    ("a shard's name", "MINIMAL[streams.in.start-shards]\n\"a b\" = { at = \"1\" }\n", 6, &["start-shards", "a b"]),
    ("a table's name", "MINIMALlease-table = \"a b\"\n", 5, &["processors.p.lease-table", "a b", "3 to 245"]),
    ("a table of two letters", "MINIMALlease-table = \"ab\"\n", 5, &["lease-table", "ab", "3 to 245"]),
    ("an empty table", "MINIMALlease-table = \"\"\n", 5, &["lease-table", "3 to 245"]),
    (
        "an empty plugin",
        "MINIMAL[processors.q]\nstream = \"s\"\nplugin = \"\"\n",
        7,
        &["processors.q.plugin", "no file"],
    ),
    ("an empty worker", "worker-id = \"\"\nMINIMAL", 1, &["worker-id", "empty"]),
    ("a worker in two lines", "worker-id = \"a\\nb\"\nMINIMAL", 1, &["worker-id", "a\\nb"]),
    ("an empty region", "MINIMAL[aws]\nregion = \"\"\n", 6, &["aws.region", "empty"]),
    ("an empty profile", "MINIMAL[aws]\nprofile = \" \"\n", 6, &["aws.profile", "empty"]),
    ("an empty folder", "cache-dir = \"\"\nMINIMAL", 1, &["cache-dir", "folder"]),
    ("a folder that is true", "cache-dir = true\nMINIMAL", 1, &["cache-dir", "folder", "false"]),
    ("a folder that is a number", "cache-dir = 7\nMINIMAL", 1, &["folder", "false"]),
    // === addresses ===
    ("no port", "MINIMAL[admin]\nlisten = \"localhost\"\n", 6, &["admin.listen", "localhost", "127.0.0.1:9465"]),
    ("a port alone", "MINIMAL[admin]\nlisten = \"9465\"\n", 6, &["admin.listen", "9465", "[::1]:9465"]),
    ("a port that is none", "MINIMAL[admin]\nlisten = \"127.0.0.1:65536\"\n", 6, &["admin.listen", "65536"]),
    ("a wrong address of nobody", "MINIMAL[admin]\nenabled = false\nlisten = \"x\"\n", 7, &["admin.listen", "x"]),
    (
        "an endpoint without http",
        "MINIMAL[aws]\nkinesis-endpoint = \"localhost:4566\"\n",
        6,
        &["kinesis-endpoint", "http://"],
    ),
    ("an endpoint of files", "MINIMAL[aws]\ndynamodb-endpoint = \"file:///x\"\n", 6, &["dynamodb-endpoint", "http://"]),
    ("an empty endpoint", "MINIMAL[aws]\nkinesis-endpoint = \"\"\n", 6, &["kinesis-endpoint", "http://"]),
    ("an endpoint's port", "MINIMAL[aws]\nkinesis-endpoint = \"http://h:70000\"\n", 6, &["http://h:70000"]),
    ("a log filter", "MINIMAL[log]\nfilter = \"loud=very\"\n", 6, &["log.filter", "loud=very", "error, warn, info"]),
    // === what does not go together ===
    (
        "an expiry before the renewal",
        "MINIMAL[leases]\nrenew = \"10s\"\nexpiry = \"5s\"\n",
        7,
        &["leases.expiry", "10s", "5s", "longer"],
    ),
    ("an expiry at the renewal", "MINIMAL[leases]\nrenew = \"10s\"\nexpiry = \"10s\"\n", 7, &["leases.expiry", "10s"]),
    (
        "an expiry before the last write is over",
        "MINIMAL[leases]\nrenew = \"3s\"\nexpiry = \"5s\"\nwrite-timeout = \"2s\"\n",
        7,
        &["leases.expiry", "3s", "2s", "longer"],
    ),
    (
        "a hand-over that takes longer than the stop",
        "MINIMAL[leases]\nleave = \"26s\"\n",
        6,
        &["leases.leave", "26s", "25s", "shutdown-timeout"],
    ),
    ("a takeover that is none", "MINIMAL[leases]\ntakeover = \"yes\"\n", 6, &["yes", "refuse", "force"]),
    ("a balance that is none", "MINIMAL[leases]\nbalance = \"even\"\n", 6, &["even", "leases", "throughput"]),
    ("an expiry of nothing", "MINIMAL[leases]\nexpiry = \"0s\"\n", 6, &["leases.expiry", "0s", "50ms to 1h"]),
    (
        "a longest wait below the shortest",
        "MINIMALretry = { backoff = \"5s\", max-backoff = \"1s\" }\n",
        5,
        &["processors.p.retry.max-backoff", "1s is out of bounds: 5s to 1h", "backoff"],
    ),
    (
        "one lease table for two",
        "MINIMAL[processors.q]\nstream = \"in\"\nplugin = \"q.wasm\"\nlease-table = \"app-p\"\n",
        8,
        &["processors.q.lease-table", "app-p", "processor `p`"],
    ),
    (
        "one lease table by their names",
        "application = \"a-b\"\nTWO[processors.q]\nstream = \"in\"\nplugin = \"q.wasm\"\nlease-table = \"a-b-p\"\n",
        8,
        &["a-b-p", "processor `p`"],
    ),
    (
        "a lease table that is beside another",
        "MINIMAL[processors.q]\nstream = \"in\"\nplugin = \"q.wasm\"\nlease-table = \"app-p-shardmill\"\n",
        8,
        &["processors.q.lease-table", "app-p-shardmill", "beside", "processor `p`"],
    ),
    (
        "a processor whose table is beside another",
        "MINIMAL[processors.p-shardmill]\nstream = \"in\"\nplugin = \"q.wasm\"\n",
        5,
        &["app-p-shardmill", "processor `p`"],
    ),
    ("a nameless worker that runs once", "worker-runs-once = true\nMINIMAL", 1, &["worker-runs-once", "worker-id"]),
    // === dead letters ===
    (
        "dead letters nowhere",
        "MINIMAL[processors.p.dead-letters]\n",
        5,
        &["processors.p.dead-letters", "no place", "`folder`", "`stream`", "`output`"],
    ),
    (
        "dead letters in two places",
        "MINIMALOUTPUT[processors.p.dead-letters]\nfolder = \"letters\"\noutput = \"out\"\n",
        9,
        &["processors.p.dead-letters.output", "`folder` already", "one place"],
    ),
    (
        "an unknown key of dead letters",
        "MINIMAL[processors.p.dead-letters]\npath = \"letters\"\n",
        6,
        &["path", "folder", "stream", "output", "file-bytes"],
    ),
    (
        "dead letters in an empty folder's name",
        "MINIMAL[processors.p.dead-letters]\nfolder = \"\"\n",
        6,
        &["processors.p.dead-letters.folder", "no folder"],
    ),
    (
        "a file of dead letters that is too small",
        "MINIMAL[processors.p.dead-letters]\nfolder = \"letters\"\nfile-bytes = 1000\n",
        7,
        &["processors.p.dead-letters.file-bytes", "1000 bytes is out of bounds", "1 MiB to 1 TiB"],
    ),
    (
        "files of dead letters in a stream",
        "MINIMAL[processors.p.dead-letters]\nstream = \"failed\"\nfile-bytes = \"2 MiB\"\n",
        7,
        &["processors.p.dead-letters.file-bytes", "in a folder", "leave it out"],
    ),
    (
        "aggregates of dead letters in a folder",
        "MINIMAL[processors.p.dead-letters]\nfolder = \"letters\"\naggregate = true\n",
        7,
        &["processors.p.dead-letters.aggregate", "in a stream"],
    ),
    (
        "a stream of dead letters that has no name",
        "MINIMAL[processors.p.dead-letters]\nstream = \"a b\"\n",
        6,
        &["processors.p.dead-letters.stream", "a b", "1 to 128"],
    ),
    (
        "dead letters that come back",
        "MINIMAL[processors.p.dead-letters]\nstream = \"in\"\n",
        6,
        &["processors.p.dead-letters.stream", "the processor reads `in`", "for dead letters alone"],
    ),
    (
        "dead letters that come back by another name",
        "MINIMAL[processors.p.dead-letters]\nstream = \"arn:aws:kinesis:eu-west-1:123456789012:stream/in\"\n",
        6,
        &["processors.p.dead-letters.stream", "the processor reads `in`", "may be", "by their ARNs"],
    ),
    (
        "dead letters that come back by an output",
        "MINIMAL[processors.p.outputs.out]\nstream = \"in\"\n[processors.p.dead-letters]\noutput = \"out\"\n",
        8,
        &["processors.p.dead-letters.output", "the processor reads `in`", "for dead letters alone"],
    ),
    (
        "dead letters to an output that is none",
        "MINIMALOUTPUT[processors.p.dead-letters]\noutput = \"outt\"\n",
        8,
        &["processors.p.dead-letters.output", "no output `outt`", "`out`"],
    ),
    (
        "dead letters of all to an output of one",
        "MINIMAL[defaults.processor.dead-letters]\noutput = \"out\"\n",
        6,
        &["defaults.processor.dead-letters.output", "no output `out`", "[processors.NAME.outputs.OUTPUT]"],
    ),
    // === failures ===
    (
        "an unknown key of failures",
        "MINIMALfailure = { bisct = true }\n",
        5,
        &["bisct", "bisect", "tolerance", "max-age"],
    ),
    (
        "an end of failures",
        "MINIMALfailure = { then = \"ignore\" }\n",
        5,
        &["ignore", "skip", "dead-letter", "stop-shard", "stop-worker", "stop-process"],
    ),
    (
        "a tolerance without its sign",
        "MINIMALfailure = { tolerance = 0.25 }\n",
        5,
        &["0.25", "percentage", "\"0.25%\""],
    ),
    (
        "a tolerance of more than all",
        "MINIMALfailure = { tolerance = \"101%\" }\n",
        5,
        &["101%", "from \"0%\" to \"100%\""],
    ),
    (
        "dead letters without a place",
        "MINIMAL[processors.p.failure]\nthen = \"dead-letter\"\n",
        6,
        &["processors.p.failure.then", "no place for dead letters", "[processors.p.dead-letters]"],
    ),
    (
        "dead letters without a place in the defaults",
        "MINIMAL[defaults.processor.failure]\nthen = \"dead-letter\"\n",
        6,
        &["defaults.processor.failure.then", "no place for dead letters"],
    ),
    ("a delivery", "MINIMALdelivery = \"exactly-once\"\n", 5, &["exactly-once", "at-least-once", "at-most-once"]),
    ("a checkpoint of nobody", "MINIMALcheckpoint = \"me\"\n", 5, &["me", "host", "guest"]),
    (
        "attempts of records that come once",
        "MINIMALdelivery = \"at-most-once\"\nretry = { attempts = 2 }\n",
        6,
        &["processors.p.retry.attempts", "more than once", "at-most-once"],
    ),
    (
        "a split of records that come once",
        "MINIMALdelivery = \"at-most-once\"\nfailure = { bisect = true }\n",
        6,
        &["processors.p.failure.bisect", "once more", "at-most-once"],
    ),
    (
        "a guest's checkpoint of records that come once",
        "MINIMALdelivery = \"at-most-once\"\ncheckpoint = \"guest\"\n",
        6,
        &["processors.p.checkpoint", "before the guest sees them", "at-least-once"],
    ),
    // === filters, batchers, lanes ===
    (
        "a filter without patterns",
        "MINIMAL[processors.p.filter]\non-invalid-json = \"drop\"\n",
        5,
        &["missing field `patterns`"],
    ),
    (
        "a filter that lets nothing pass",
        "MINIMAL[processors.p.filter]\npatterns = []\n",
        6,
        &["processors.p.filter.patterns", "at least one"],
    ),
    (
        "a pattern that is not JSON",
        "MINIMAL[processors.p.filter]\npatterns = [\n  '{\"partitionKey\": [\"a\"]}',\n  '{\"data\": ',\n]\n",
        8,
        &["processors.p.filter.patterns", "pattern 2", "not JSON"],
    ),
    (
        "an operator that is none",
        "MINIMAL[processors.p.filter]\npatterns = ['{\"data\": {\"x\": [{\"like\": \"a\"}]}}']\n",
        6,
        &["processors.p.filter.patterns", "pattern 1", "at `data.x[0].like`", "no operator"],
    ),
    (
        "a field that a record has not, in a table",
        "MINIMAL[[processors.p.filter.patterns]]\npartitionKey = [\"a\"]\n[[processors.p.filter.patterns]]\nkey = [\"a\"]\n",
        7,
        &["processors.p.filter.patterns", "pattern 2", "at `key`", "`partitionKey`"],
    ),
    (
        "a pattern that is a number",
        "MINIMALfilter = { patterns = [5] }\n",
        5,
        &["processors.p.filter.patterns", "pattern 1", "JSON in quotes"],
    ),
    (
        "a pattern with a date",
        "MINIMALfilter = { patterns = [{ data = { at = [2026-07-01] } }] }\n",
        5,
        &["processors.p.filter.patterns", "pattern 1", "no dates", "2026-07-01", "in quotes"],
    ),
    (
        "an unknown key of a filter",
        "MINIMALfilter = { patterns = [], on_invalid_json = \"drop\" }\n",
        5,
        &["on_invalid_json", "on-invalid-json"],
    ),
    (
        "what is done with invalid JSON",
        "MINIMALfilter = { patterns = [], on-invalid-json = \"skip\" }\n",
        5,
        &["skip", "pass", "drop", "fail"],
    ),
    (
        "lanes by what is no pointer",
        "MINIMALparallelism = 4\npartition-by = \"customer\"\n",
        6,
        &["processors.p.partition-by", "`customer`", "JSON pointer", "\"/customer/id\""],
    ),
    (
        "lanes by the whole body",
        "MINIMALparallelism = 4\npartition-by = \"\"\n",
        6,
        &["processors.p.partition-by", "JSON pointer"],
    ),
    ("lanes by half of an escape", "MINIMALpartition-by = \"/a~2\"\n", 5, &["processors.p.partition-by", "`~1`"]),
    (
        "lanes of records that come once",
        "MINIMALdelivery = \"at-most-once\"\nparallelism = 2\n",
        6,
        &["processors.p.parallelism", "one batch after the other", "1 is what", "at-most-once"],
    ),
    (
        "lanes of all where one says how far it is",
        "MINIMALcheckpoint = \"guest\"\n[defaults.processor]\nparallelism = 2\n",
        7,
        &["defaults.processor.parallelism", "`checkpoint = \"guest\"`", "in the order of their shard"],
    ),
    (
        "batchers of records that come once",
        "MINIMALdelivery = \"at-most-once\"\n[[processors.p.batchers]]\nname = \"b\"\n",
        6,
        &["processors.p.batchers", "at-most-once", "none"],
    ),
    (
        "batchers where the guest says how far it is",
        "MINIMALcheckpoint = \"guest\"\n[[processors.p.batchers]]\nname = \"b\"\n",
        6,
        &["processors.p.batchers", "`checkpoint = \"guest\"`"],
    ),
    (
        "batchers by their names",
        "MINIMAL[processors.p.batchers.large]\nrecords = 5\n",
        5,
        &["[[processors.NAME.batchers]]", "`name`", "first"],
    ),
    ("a batcher without a name", "MINIMAL[[processors.p.batchers]]\nrecords = 5\n", 5, &["missing field `name`"]),
    (
        "a batcher with a space",
        "MINIMAL[[processors.p.batchers]]\nname = \"a b\"\n",
        6,
        &["processors.p.batchers.name", "`a b`", "letters"],
    ),
    (
        "a batcher that is the default",
        "MINIMAL[[processors.p.batchers]]\nname = \"default\"\n",
        6,
        &["processors.p.batchers.name", "no batcher takes", "another name"],
    ),
    (
        "an unknown key of a batcher",
        "MINIMAL[[processors.p.batchers]]\nname = \"b\"\nmax-records = 5\n",
        7,
        &["max-records", "records", "bytes", "window"],
    ),
    (
        "two batchers of one name",
        "MINIMALBATCHER[[processors.p.batchers]]\nname = \"b\"\n",
        9,
        &["processors.p.batchers.name", "a batcher `b` already", "`when`"],
    ),
    (
        "a batcher behind one that takes all",
        "MINIMAL[[processors.p.batchers]]\nname = \"all\"\nBATCHER",
        7,
        &["processors.p.batchers.b", "no record comes here", "`all`", "`when`"],
    ),
    (
        "a batcher that takes nothing",
        "MINIMAL[[processors.p.batchers]]\nname = \"b\"\nwhen = []\n",
        7,
        &["processors.p.batchers.b.when", "leave `when` out"],
    ),
    (
        "a pattern of a batcher",
        "MINIMALBATCHER[[processors.p.batchers]]\nname = \"c\"\nwhen = [\n  { data = { x = [1] } },\n  { data = { x = 1 } },\n]\n",
        12,
        &["processors.p.batchers.c.when", "pattern 2", "at `data.x`"],
    ),
    (
        "a window of a batcher",
        "MINIMALBATCHERwindow = \"999ms\"\n",
        8,
        &["processors.p.batchers.b.window", "999ms", "1s to 1day"],
    ),
    (
        "calls without records at no time",
        "MINIMALbatch = { empty = true }\n",
        5,
        &["processors.p.batch.empty", "`wait` or `window`"],
    ),
    (
        "calls of a batcher without records at no time",
        "MINIMALBATCHERempty = true\n",
        8,
        &["processors.p.batchers.b.empty", "`wait` or `window`"],
    ),
    (
        "a window of what is left of nothing",
        "MINIMALbatch = { window = \"1m\" }\n[[processors.p.batchers]]\nname = \"all\"\n",
        5,
        &["processors.p.batch.window", "no record comes here", "`all`"],
    ),
    // === pipelines ===
    (
        "an output to two places",
        "MINIMALOUTPUTto = \"processor:p\"\n",
        7,
        &["processors.p.outputs.out.to", "`stream` already", "two outputs"],
    ),
    (
        "an output to nowhere",
        "MINIMAL[processors.p.outputs.out]\n",
        5,
        &["processors.p.outputs.out", "leads nowhere", "`stream`", "\"processor:NAME\""],
    ),
    (
        "an output to a processor that is not there",
        "MINIMAL[processors.p.outputs.out]\nto = \"processor:audit\"\n",
        6,
        &["processors.p.outputs.out.to", "no processor `audit`", "`p`"],
    ),
    (
        "an output to a processor that is misspelt",
        "MINIMAL[processors.p.outputs.out]\nto = \"processor:audti\"\nSTAGE",
        6,
        &["processors.p.outputs.out.to", "no processor `audti`", "did you mean `audit`?"],
    ),
    (
        "an output to a processor by its name alone",
        "MINIMAL[processors.p.outputs.out]\nto = \"audit\"\nSTAGE",
        6,
        &["processors.p.outputs.out.to", "`audit` is not a place", "did you mean \"processor:audit\"?"],
    ),
    (
        "an output to a stream by `to`",
        "MINIMAL[processors.p.outputs.out]\nto = \"stream:x\"\n",
        6,
        &["processors.p.outputs.out.to", "`stream:x` is not a place", "named with `stream`"],
    ),
    (
        "an order of what is not sent",
        "MINIMALTO_AUDITaggregate = false\nordering = \"key\"\nSTAGE",
        8,
        &["processors.p.outputs.audit.ordering", "to a processor", "`ordering`, `aggregate`"],
    ),
    (
        "a processor that nothing feeds",
        "MINIMALSTAGE",
        5,
        &["processors.audit", "no stream is named, and no output leads to it", "to = \"processor:audit\""],
    ),
    (
        "processors that feed each other alone",
        "MINIMALSTAGE[processors.audit.outputs.x]\nto = \"processor:b\"\n[processors.b]\nplugin = \"p.wasm\"\n[processors.b.outputs.x]\nto = \"processor:audit\"\n",
        5,
        &["processors.audit", "no record comes here", "`audit`, `b`", "no stream to them"],
    ),
    (
        "a lease table without leases",
        "MINIMALTO_AUDITSTAGElease-table = \"audit\"\ncheckpoint-interval = \"1s\"\n",
        9,
        &["processors.audit.lease-table", "reads none", "`lease-table`, `checkpoint-interval`"],
    ),
    (
        "a delivery of what is not read",
        "MINIMALTO_AUDITSTAGEdelivery = \"at-least-once\"\ncheckpoint = \"host\"\ncheckpoint-count = 5\nout-of-range = \"drop\"\n",
        9,
        &[
            "processors.audit.delivery",
            "`delivery`, `checkpoint`, `checkpoint-count`, `out-of-range`",
            "name a `stream`",
        ],
    ),
    (
        "at most once of what comes again",
        "MINIMALTO_AUDITSTAGEstream = \"other\"\ndelivery = \"at-most-once\"\n",
        10,
        &["processors.audit.delivery", "from `p`", "again after a crash", "at-most-once"],
    ),
    (
        "a guest's checkpoint of another",
        "MINIMALTO_AUDITSTAGEstream = \"other\"\ncheckpoint = \"guest\"\n",
        10,
        &["processors.audit.checkpoint", "an output of `p` leads here", "of another"],
    ),
    (
        "dead letters that come back to a stage",
        "MINIMALTO_AUDITSTAGEdead-letters = { stream = \"in\" }\n",
        9,
        &["processors.audit.dead-letters.stream", "`p`", "reads `in`", "come back", "a folder"],
    ),
    (
        "dead letters that come back to a stage by an output",
        "MINIMALTO_AUDITSTAGEdead-letters = { output = \"x\" }\n[processors.audit.outputs.x]\nstream = \"in\"\n",
        9,
        &["processors.audit.dead-letters.output", "reads `in`"],
    ),
    (
        "dead letters to a processor",
        "MINIMALdead-letters = { output = \"audit\" }\nTO_AUDITSTAGE",
        5,
        &["processors.p.dead-letters.output", "leads to a processor", "keeps nothing", "`folder`"],
    ),
    (
        "a way of more steps than a record takes",
        "max-hops = 1\nMINIMALTO_AUDITSTAGE[processors.audit.outputs.x]\nto = \"processor:b\"\n[processors.b]\nplugin = \"p.wasm\"\n",
        12,
        &["processors.b", "2 steps", "a record takes 1", "`max-hops` to 2"],
    ),
    // === the defaults ===
    (
        "bounds in the defaults",
        "MINIMAL[defaults.processor.retry]\nattempts = 0\n",
        6,
        &["defaults.processor.retry.attempts", "0 is out of bounds", "1 to 1000000"],
    ),
    (
        "bounds in the defaults of streams",
        "MINIMAL[defaults.stream]\nidle = \"1ms\"\n",
        6,
        &["defaults.stream.idle", "1ms", "200ms to 5m"],
    ),
    (
        "bounds in a section beside good defaults",
        "MINIMAL[processors.p.retry]\nattempts = 0\n[defaults.processor.retry]\nattempts = 5\n",
        6,
        &["processors.p.retry.attempts", "0 is out of bounds"],
    ),
    (
        "bounds in a stream that nobody uses",
        "MINIMAL[streams.x]\nidle = \"0s\"\n",
        6,
        &["streams.x.idle", "200ms to 5m"],
    ),
];

/// Lines 1 to 4.
const MINIMAL: &str = "application = \"app\"\n[processors.p]\nstream = \"in\"\nplugin = \"p.wasm\"\n";
const OUTPUT: &str = "[processors.p.outputs.out]\nstream = \"out\"\n";
/// Three lines.
const BATCHER: &str = "[[processors.p.batchers]]\nname = \"b\"\nwhen = ['{\"partitionKey\": [\"a\"]}']\n";
/// Two lines, and a processor of two lines.
const TO_AUDIT: &str = "[processors.p.outputs.audit]\nto = \"processor:audit\"\n";
const STAGE: &str = "[processors.audit]\nplugin = \"p.wasm\"\n";

fn text(written: &str) -> String {
    let processor = MINIMAL.split_once('\n').map_or("", |(_, processor)| processor);
    let parts = [
        ("MINIMAL", MINIMAL),
        ("TWO", processor),
        ("OUTPUT", OUTPUT),
        ("BATCHER", BATCHER),
        ("TO_AUDIT", TO_AUDIT),
        ("STAGE", STAGE),
    ];
    parts.iter().fold(written.to_owned(), |text, (name, part)| text.replace(name, part))
}

#[test]
fn each_mistake_names_the_file_the_line_the_key_and_what_is_allowed() {
    let mut missing = Vec::new();
    for (name, written, line, said) in MISTAKES {
        let shown = bad(&text(written));
        let place = if *line > 0 { format!("test.toml:{line}:") } else { "test.toml".to_owned() };
        for part in said.iter().copied().chain([place.as_str()]) {
            if !shown.contains(part) {
                missing.push(format!("{name}: `{part}` is missing in:\n{shown}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_longest_names_that_the_services_take_are_taken_and_longer_ones_are_not() {
    let application = |length: usize| MINIMAL.replace("\"app\"", &format!("\"{}\"", "a".repeat(length)));
    assert_eq!(good(&application(100)).processors["p"].lease_table.as_ref().unwrap().len(), 102);
    bad(&application(101));
    let processor = |length: usize| MINIMAL.replace(".p]", &format!(".{}]", "p".repeat(length)));
    good(&processor(100));
    bad(&processor(101));
    let stream = |length: usize| MINIMAL.replace("\"in\"", &format!("\"{}\"", "s".repeat(length)));
    good(&stream(128));
    bad(&stream(129));
    // With the ten characters of `-shardmill` the table beside it has 255.
    let table = |length: usize| format!("{MINIMAL}lease-table = \"{}\"\n", "t".repeat(length));
    for length in [3, 245] {
        good(&table(length));
    }
    for length in [2, 246] {
        bad(&table(length));
    }
    let worker = |length: usize| format!("worker-id = \"{}\"\n{MINIMAL}", "w".repeat(length));
    good(&worker(2048));
    bad(&worker(2049));
}

#[test]
fn a_name_of_another_language_is_shown_as_it_is_and_cut_where_it_is_long() {
    let shown = bad("application = \"пример\"\n");
    assert!(shown.contains("`пример`"), "{shown}");
    let long = bad(&format!("application = \"{}\"\n", "x".repeat(10_000)));
    assert!(long.contains('…'), "{long}");
}

#[test]
fn no_depth_of_nesting_breaks_the_reader() {
    for (open, close) in [("[", "]"), ("{ a = ", " }")] {
        let nested = format!("{MINIMAL}config = {{ deep = {}1{} }}\n", open.repeat(20_000), close.repeat(20_000));
        bad(&nested);
    }
    let dotted = format!("{MINIMAL}config = {{ {}a = 1 }}\n", "a.".repeat(20_000));
    let _good_or_bad = parse("test.toml", &dotted, Path::new(""));
}

#[test]
fn endpoints_of_all_forms_are_taken() {
    for endpoint in
        ["http://127.0.0.1:4566", "https://kinesis.eu-west-1.amazonaws.com", "http://[::1]:80", "http://[::1]"]
    {
        let config = good(&format!("{MINIMAL}[aws]\nkinesis-endpoint = {endpoint:?}\n"));
        assert_eq!(config.aws.kinesis_endpoint.as_deref(), Some(endpoint));
    }
}

#[test]
fn leases_that_are_renewed_in_time_are_taken() {
    good(&format!("{MINIMAL}[leases]\nrenew = \"300ms\"\nexpiry = \"1s\"\n"));
}
