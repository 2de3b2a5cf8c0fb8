//! Records that are sent.

use super::codes;

codes! {
    RECORD_INVALID = "SM0601" "The record breaks a rule of PutRecords"
        means "A partition key has 1 to 256 characters, and key and data together have 1 MiB at most, or what the stream is \
            set to."
        kept "This record is not sent; the others of its call or its file are."
        next "Make the record smaller (compress it, or cut it), or correct its key."

    OPTIONS = "SM0602" "An option of sending is out of its bounds"
        means "Sizes, counts and times of requests have bounds, most of them the service's own. The message names them."
        kept "Nothing was sent, and no stream was asked."
        next "Choose a value within the bounds that the message gives."

    REFUSED = "SM0603" "The service refuses to take records"
        means "The stream is not there, is being deleted, or the request is refused as such. It will not pass by itself."
        kept "What was acknowledged stays stored. In a worker the checkpoint does not pass records whose outputs are not \
            acknowledged, so that they are sent again; with a spool they wait on the disk."
        next "Check the stream's name, region and account, then start the shard again (`shardmill restart`) or put the rest \
            of the input again."

    DENIED = "SM0604" "The credentials do not allow sending to the stream"
        means "PutRecords or ListShards on the stream is denied, its KMS key cannot be used, or the credentials do not work."
        kept "What was acknowledged stays stored; nothing else was taken. In a worker the checkpoint stays before the \
            records whose outputs are not sent."
        next "Grant `kinesis:PutRecords` and `kinesis:ListShards` on the stream, and `kms:GenerateDataKey` on its key."

    STOPPED = "SM0605" "Sending was ended before all records were acknowledged"
        means "The producer was closed, or the lease on whose behalf it sent is lost."
        kept "What was acknowledged stays stored. The rest was given back, or is processed again by whoever has the lease: \
            some of it may be stored twice."
        next "Nothing in a worker. In a program of your own, close the producer only after its last result."

    EXPIRED = "SM0606" "The record's time to live is over"
        means "It was tried for as long as the producer's `record-ttl` allows, and the stream did not take it; the message \
            has the last reason."
        kept "The record is given back to the program, which alone decides what becomes of it."
        next "Mend the last reason, raise the time, or give the producer a spool, in which an outage costs no record."

    THROTTLED = "SM0607" "The shard took no more records"
        means "A shard takes 1 MiB and 1,000 records a second, and the producer was told to fail rather than to wait."
        kept "The record is given back; nothing of it is stored."
        next "Add shards, spread the keys, or let the producer wait (`fail-if-throttled` off)."

    NOT_SPOOLED = "SM0608" "Neither the stream nor the spool took the record"
        means "The stream does not take it now, and the spool could not keep it for the reason in the message."
        kept "The record is given back to the program. What the spool has accepted before stays in it."
        next "Look at the spool first (`shardmill spool list`): its disk, its bound, its owner."

    TOO_MANY_PENDING = "SM0609" "Too many records wait to be sent"
        means "The producer has as many records in memory as it may, because they come faster than the stream takes them."
        kept "The record is given back and was not accepted."
        next "Put it again later, use the call that waits, add shards, or raise the producer's bounds."

    NOT_TAKEN = "SM0610" "The stream does not take records at the moment"
        means "It is throttled, cannot be reached, or fails, which passes as a rule. The field `service_code` of the log has \
            the service's own word for it."
        kept "Sending goes on until records are acknowledged, so none is lost: a worker's checkpoint waits, a spool keeps \
            them on the disk, and a producer without one gives a record back when its time to live is over."
        next "Nothing, if it passes. If it lasts: for throttling add shards or spread keys, else look at the network and the \
            endpoint."
}
