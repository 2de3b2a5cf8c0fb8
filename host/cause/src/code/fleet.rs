//! Deployments to a fleet.

use super::codes;

codes! {
    DOCUMENT = "SM1501" "The deployment's document makes no sense"
        means "What says which version a fleet should run, in the table whose name ends in `-shardmill`, was edited or written \
            by something else."
        kept "It is left as it is. Workers go on with the versions that they run."
        next "Delete the item that the message names to begin anew, and deploy again."

    LATER = "SM1502" "The deployment's document is of a later version"
        means "A newer Shardmill has written it, and this one would lose what it does not know of."
        kept "It is not changed. Workers go on with the versions that they run."
        next "Use the newer version of this command, and bring the workers up to it."

    NO_VERSION = "SM1503" "There is no such version to go to"
        means "The history knows nothing before what is wanted, or no version, or several, whose digest begins so."
        kept "What is wanted of the fleet is as it was."
        next "`shardmill plugin history PROCESSOR -c FILE` shows the versions; write more of the digest."

    SOURCE = "SM1504" "The text says nothing that a plugin could come from"
        means "A path is expected, or an address that begins with `https://`: neither empty nor too long, and without a user or \
            a password, which would stand in the fleet's table."
        kept "What is wanted of the fleet is as it was."
        next "Name a file that all workers can read under the same path, or an address."

    SHARE = "SM1505" "The number is no share of the workers"
        means "A share of the workers is a whole percentage, from 1% to 100%."
        kept "What is wanted of the fleet is as it was."
        next "Say `--share 25%`, for example: at least one worker is always in it."

    NOT_FOLLOWED = "SM1506" "Not all workers run the version that is wanted"
        means "Workers refuse it or cannot have it; the lines above say which and why."
        kept "Each of them goes on with the version that it runs, and tries again. Those that took the version run it."
        next "Mend the reason, or go back: `shardmill plugin rollback PROCESSOR -c FILE`."

    CONTENDED = "SM1507" "Others change the deployment at the same time"
        means "Each attempt to write the document met one that had just been written."
        kept "Nothing was done; what others have written stays."
        next "See what they want (`shardmill plugin history`), and give the command again."

    OTHER_WANTED = "SM1508" "What is wanted of the fleet is something else than was meant"
        means "The command is about a version that is not the one that is wanted now, or none was ever deployed."
        kept "What is wanted of the fleet is as it was."
        next "Look at `shardmill plugin list -c FILE`, then deploy the version that you mean."
}
