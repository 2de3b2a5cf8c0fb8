//! Leases, their table, and who else works on it.

use super::codes;

codes! {
    TABLE_THROTTLED = "SM0301" "The lease table is throttled"
        means "DynamoDB takes no more requests for the table at this moment: its provisioned capacity is used up, or many \
            workers start at once."
        kept "Nothing was changed by the call. Leases are kept and renewed as soon as the table answers; one that cannot be \
            renewed before it expires is let go before anybody else takes it, with its last checkpoint."
        next "Nothing, if it passes. If it lasts, make the table on-demand or raise its capacity: each lease costs one write \
            in `leases.renew`, and each checkpoint one."

    WRITE_UNKNOWN = "SM0302" "Whether a write to a table was applied is not known"
        means "The connection broke, or the service failed, after the request was sent. The write may be there, or not, or \
            come later."
        kept "The row is read again before it is written again, and each write names the row that it expects: so it is \
            done once or not at all, and no checkpoint goes back."
        next "Nothing, if it passes. If it comes again, look at the network between this machine and DynamoDB."

    TABLE_NOT_PERMITTED = "SM0303" "The credentials do not allow what the lease table needs"
        means "DynamoDB denied an action on the lease table, or on the table beside it whose name ends in `-shardmill`. The \
            message names the action and the table."
        kept "Nothing was changed. At a start no lease was taken; a worker that runs keeps its leases until they expire, and \
            tries on."
        next "Grant the role DescribeTable, CreateTable, Scan, GetItem, PutItem, UpdateItem and DeleteItem on both tables; \
            without CreateTable, create them beforehand. Make sure that the credentials are those you mean: \
            `aws sts get-caller-identity`."

    TABLE_CREDENTIALS = "SM0304" "DynamoDB does not take the AWS credentials"
        means "There are none, they have expired, their signature is not accepted, or where they come from did not answer."
        kept "Nothing was changed. Those that have expired are waited for: a minute at a start, and in a worker that runs for \
            as long as its leases last."
        next "Look at AWS_PROFILE, at the instance's or the container's role, at the region, and at this machine's clock: \
            signatures are refused when it is wrong by more than five minutes."

    NO_TABLE = "SM0305" "There is no such table"
        means "The table is not there in this account and region. Lease tables are created at the first `shardmill run`; \
            commands that look at a fleet create none."
        kept "Nothing was changed. If the table was deleted under a worker, its checkpoints are gone with it."
        next "Check the region, the account, `application` and `lease-table`. If nothing has run yet, start a worker first. \
            Restore a deleted table from a backup before workers start again, or they begin at `start`."

    WRONG_TABLE = "SM0306" "A table of this name is something else"
        means "A lease table has the key `leaseKey`, a text, as the KCL makes it, and the table beside it the key `key`. The \
            table that was found has another key, so it is somebody else's."
        kept "Nothing was written to it."
        next "Name another table with `lease-table`, or another `application`."

    BROKEN_LEASE = "SM0307" "A row of the lease table is no lease"
        means "The row has an attribute that is missing, has another type, or says what no lease says. Somebody has edited \
            it, or another program writes to the table."
        kept "The row is left as it is. Its shard is not processed, so nothing is passed over; all other shards go on."
        next "Put the attribute right that the message names; the shard is taken within seconds. Or delete the row: \
            the shard then begins anew at `start`, and what was processed of it is processed again."

    BROKEN_DOCUMENT = "SM0308" "A document of the fleet makes no sense"
        means "In the table whose name ends in `-shardmill` there is what workers tell each other. A document there was \
            edited by hand, or written by something else."
        kept "The document is left as it is; leases and checkpoints are in the other table, and go on."
        next "Look at the item that the message names. Documents below `fleet/` may be deleted, workers write them anew; \
            one that names the stream is to be put right, because checkpoints belong to it."

    TABLE_UNAVAILABLE = "SM0309" "The lease table cannot be used now"
        means "DynamoDB cannot be reached, does not answer in time, or answers what makes no sense."
        kept "Nothing was changed. Leases are kept until they expire, and let go before anybody else can take them; a \
            successor begins at the last checkpoint."
        next "Look at the network, at AWS_ENDPOINT_URL_DYNAMODB, and at proxies between. A worker tries on by itself."

    CONFLICT = "SM0310" "Somebody else has written the lease"
        means "Between the look at a row and the write to it another worker wrote it. That is how two are kept from having \
            one lease."
        kept "Nothing was written over. Whoever has the lease goes on, and whoever does not stops working for the shard."
        next "Nothing, as a rule. If it never ends, two processes use one `worker-id`, or another program writes to the table."

    CHANGE_REFUSED = "SM0311" "The lease does not take the change"
        means "A change was asked for that a lease in this state cannot have: its checkpoint would go back, its shard is \
            done, nobody holds it, or it is on its way to another worker."
        kept "The lease is as it was, with its checkpoint."
        next "Read what the message says of the lease's state. Ask the worker that has it; a shard that is done stays \
            done, and `shardmill rewind` is the way to let a checkpoint go back."

    LEASE_LOST = "SM0312" "The lease is not held any more"
        means "It was not renewed before its deadline (a slow table, a machine that was suspended or overloaded), or another \
            worker took it, or its row was deleted."
        kept "Work for the shard ends at once: nothing is checkpointed or sent for it after the deadline. Whoever takes it \
            goes on from its last checkpoint, and repeats what came after that."
        next "If it comes often, see whether the machine has enough CPU and the table enough capacity, or raise \
            `leases.expiry`. If others take the lease, look at `shardmill status` for who they are."

    TWIN = "SM0313" "Another live process has this worker's id"
        means "Two processes have one `worker-id`, so each takes the other's leases for its own."
        kept "One of the two goes on and the other one ends with 78. Checkpoints are fenced by the lease's epoch, so nothing is \
            lost; some records may be processed twice."
        next "Give each worker a `worker-id` of its own, or leave the key out: then every run has one."

    FOREIGN = "SM0314" "A KCL, or another system, works on the lease table"
        means "Somebody who is no Shardmill worker renews leases of this table. Two that both balance would take leases from \
            each other for ever."
        kept "Nothing was written to the table. The other system goes on undisturbed."
        next "Stop it, wait until its leases expire, and start again: its checkpoints are taken over. To go on beside it all \
            the same, set `leases.takeover = \"force\"`."

    LEASE_OPTIONS = "SM0315" "The times of leases do not go together"
        means "A lease must live longer than a renewal and the time that a write may take, or it would expire between two \
            renewals."
        kept "No lease was taken."
        next "Raise `leases.expiry` or lower `leases.renew`: three times `renew` survives two lost renewals."

    LEASE_NAME = "SM0316" "The text names no lease and no worker"
        means "Keys of leases and ids of workers have a bound on their length, and are not empty."
        kept "Nothing was asked of the table, and nothing was changed."
        next "Shorten `worker-id`, or leave it out: then every run has an id of its own."
}
