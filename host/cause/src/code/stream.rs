//! Streams that are read.

use super::codes;

codes! {
    THROTTLED = "SM0401" "Kinesis takes fewer calls than are made"
        means "A shard gives 2 MiB and five reads a second to all its readers together, and each account has limits on \
            listing streams. They are used up."
        kept "Nothing is passed over: the read is made again later, from the same position. The lag grows meanwhile."
        next "If it lasts, see who else reads the stream. Add shards (`shardmill stream scale`), or read less often \
            (`idle`, `idle-max`)."

    UNAVAILABLE = "SM0402" "Kinesis does not answer"
        means "No connection, no answer in time, a failure of the service, or an answer of a proxy in its place."
        kept "Leases and checkpoints stay as they are; reading goes on where it was as soon as there is an answer."
        next "Check the network, AWS_ENDPOINT_URL_KINESIS and proxies. A worker tries on by itself; at a start it gives up \
            after a minute."

    EXPIRED = "SM0403" "What a page was asked for with has expired"
        means "Shard iterators and tokens of listings live for five minutes, and one was used later: the machine was \
            suspended, or the shard had no memory left to read into."
        kept "The position is known without it. A new one is taken there, and nothing is passed over."
        next "Nothing. If it comes often, the machine stands still for minutes: look at its load."

    NOT_FOUND = "SM0404" "There is no such stream"
        means "Kinesis knows no stream of this name in this region and account."
        kept "Nothing was created and no lease was written."
        next "Check the name, the region and the account (`shardmill stream list`), or create the stream \
            (`shardmill stream create`). A stream of another account or region is named by its `arn`."

    STREAM_GONE = "SM0405" "The stream was deleted while it was read"
        means "The stream was there when the worker began, and is not any more. Records that were not read went with it."
        kept "What was processed is checkpointed; its leases are retired. Other streams of the worker go on."
        next "Remove the stream from the configuration, or create it again: then it is read from its `start`."

    STREAM_RECREATED = "SM0406" "Another stream has taken the stream's name"
        means "It was deleted and created again. The new one has shards of the same ids, with which the old checkpoints have \
            nothing to do."
        kept "No old checkpoint is used for the new stream. Old leases are removed, and the new stream is read from `start`."
        next "Nothing, if that is what was meant. A reader of one shard is to be started again."

    SHARD_GONE = "SM0407" "The shard is gone, and what was not read of it is lost"
        means "The shard was closed by a split or a merge, and its last records are older than the stream's retention: the \
            worker was behind for longer than that."
        kept "Its lease is ended, and the shards that follow are read from their beginning."
        next "Raise the stream's retention, and set an alarm on `shardmill_shard_retention_used`: at 1 records are lost. \
            `[watchdog] lag-alarm` says when the log and `/readyz` tell of it."

    OUT_OF_RETENTION = "SM0408" "The checkpoint's record is older than the stream's retention"
        means "The shard stood still for longer than its stream keeps records, so those behind the checkpoint may be gone."
        kept "With `reset = \"fail\"` nothing is passed over: the shard stands, with its checkpoint, until somebody decides. \
            Otherwise it goes on as `reset` says, and each such gap is logged and counted."
        next "Set `reset = \"earliest\"` to go on with the oldest record that there is, or `\"latest\"`; or \
            `shardmill rewind` the shard to a place of your choice. Raise the stream's retention if outages may last longer."

    NOT_PERMITTED = "SM0409" "The credentials do not allow reading the stream"
        means "Kinesis denied an action on the stream; the message names it."
        kept "Nothing was changed. At a start no lease was taken; a shard that was being read stands, with its checkpoint."
        next "Grant the role DescribeStreamSummary, ListShards, GetShardIterator and GetRecords on the stream. For one of \
            another account, the stream's own policy has to allow it too."

    KMS = "SM0410" "The stream's KMS key cannot be used"
        means "The stream is encrypted, and its key is disabled, is being deleted, throttles, or is not open to this \
            identity."
        kept "Nothing was read, so nothing is passed over. Checkpoints stay."
        next "Enable the key, and grant `kms:Decrypt` on it to the role (`kms:GenerateDataKey` for sending)."

    CREDENTIALS = "SM0411" "Kinesis does not take the AWS credentials"
        means "There are none, they have expired, their signature is not accepted, or where they come from did not answer."
        kept "Nothing was read or changed. Expired ones are waited for: a minute at a start, and then for as long as leases \
            are held."
        next "Look at AWS_PROFILE, at the role of the instance or container, at the region, and at this machine's clock."

    REJECTED = "SM0412" "Kinesis refuses the request as such"
        means "The service says that the request makes no sense, which the code in the message tells apart. A program that \
            only imitates Kinesis may lack the call."
        kept "Nothing was changed; the shard stands at its checkpoint."
        next "Look at what answers at the endpoint. If it is Kinesis itself, please report it with the message."

    INVALID_ANSWER = "SM0413" "An answer of Kinesis cannot be right"
        means "It was cut short, is no JSON or CBOR, or has records that no shard has: out of order, or without a sequence \
            number."
        kept "Nothing of the answer is used and no checkpoint moves. The same is asked for again."
        next "Check what answers at the endpoint, and what stands between: proxies change answers and cut them."

    START_POSITION = "SM0414" "The text is no place to start at"
        means "Allowed are `trim-horizon`, `latest`, a time such as `2026-07-01T00:00:00Z`, or milliseconds since 1970."
        kept "Nothing was read, and no lease was written."
        next "Write it so, in quotes. A number below 1973 in milliseconds is taken for seconds: multiply it by 1000."

    READ_OPTIONS = "SM0415" "An option of reading is out of its bounds"
        means "How often and how much is read has bounds, most of them the service's own. The message names them."
        kept "Nothing was read, and no lease was taken."
        next "Choose a value within the bounds that the message gives."
}
