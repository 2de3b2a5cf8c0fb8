//! Records, and the texts that name them.

use super::codes;

codes! {
    STREAM_ARN = "SM0101" "The text is not a stream's ARN"
        means "An ARN of a stream is `arn:aws:kinesis:REGION:ACCOUNT:stream/NAME`, also with the partitions `aws-cn` and \
            `aws-us-gov`. What was given has another form, or names a consumer of a stream (enhanced fan-out)."
        kept "Nothing was asked of any service, and nothing was changed."
        next "Copy the ARN of the stream itself, without what follows `/consumer/`, or give the stream's name alone."

    HASH_KEY = "SM0102" "The text is not a hash key"
        means "A hash key is a decimal number from 0 to 2^128 - 1; shards divide these numbers among them."
        kept "Nothing was sent and no shard was changed."
        next "Write the number in decimal digits alone. `shardmill stream describe STREAM` shows which keys each shard takes."

    SEQUENCE_NUMBER = "SM0103" "The text is not a sequence number or a checkpoint"
        means "A sequence number has 1 to 512 decimal digits. Where a checkpoint is expected, TRIM_HORIZON, LATEST, \
            AT_TIMESTAMP and SHARD_END are taken as well."
        kept "Nothing was read from there, and no checkpoint was changed."
        next "Copy the number from `shardmill tail --json`, from `shardmill status`, or from the row of the lease table. In a \
            row that is broken, put the checkpoint right that stood there before."

    SHARD_ID = "SM0104" "The text is not a shard's id"
        means "An id of a shard has 1 to 128 letters, digits, `_`, `.` or `-`, such as `shardId-000000000003`."
        kept "Nothing was asked of any service, and nothing was changed."
        next "Copy the id from `shardmill stream describe STREAM`, or from `shardmill status`."

    NOT_AN_AGGREGATE = "SM0105" "A payload begins like an aggregate of the KPL, and is none"
        means "Aggregates begin with four bytes and end with a checksum. This payload has the first and not the second, or \
            its message breaks the format: it was cut short, changed on its way, or only looks like one."
        kept "The record goes to the plugin unchanged, as one record, as the KCL hands it over. Nothing of it is lost, and \
            the records around it are taken apart as ever."
        next "Nothing, if such payloads are no aggregates. Otherwise look at the producer that wrote them: the record's key \
            and sequence number say which one it was."

    PAGE_RECORD = "SM0106" "A record of an answer cannot be one of a shard"
        means "What came as a record has a sequence number that is none, or a partition key that is not UTF-8. Kinesis \
            sends no such thing: something else answers, or changes answers on their way."
        kept "The whole answer is put aside and no checkpoint moves, so that nothing is passed over. The same page is asked \
            for again."
        next "See what answers at the endpoint, and whether a proxy stands before it."
}
