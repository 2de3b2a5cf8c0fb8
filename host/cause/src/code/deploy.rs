//! Other versions of plugins.

use super::codes;

codes! {
    NO_PROCESSOR = "SM1401" "There is no such processor"
        means "Neither the configuration nor the worker has a processor of this name."
        kept "Nothing was deployed."
        next "Take one of the names that the message lists."

    DIGEST = "SM1402" "The file is another one than was meant"
        means "Its SHA-256 is not the one that was given with it: it was changed on its way, or it is another build."
        kept "It was not loaded. The version that runs goes on."
        next "Send the file that has the digest, or name this file's (`shardmill plugin inspect FILE`)."

    TRIAL = "SM1403" "The version fails with the trial records"
        means "Before a version takes over it has to process the records of `reload.trial`, and it fails with some of them; \
            the message has their lines. Or the records cannot be used."
        kept "The version that runs goes on; none of its batches was touched, and nothing of the trial was sent."
        next "Try the same with `shardmill plugin test --records FILE`, and mend the plugin or the records."

    UNAVAILABLE = "SM1404" "The plugin's file cannot be had"
        means "It cannot be read or downloaded, is larger than a plugin may be, or its address is not `https`."
        kept "The version that runs goes on. Workers try again where it is the fleet that wants the version."
        next "Check path, address and permissions. What is fetched over `http` needs its digest."

    STOPPING = "SM1405" "The worker is stopping"
        means "It takes no other version any more, because it is on its way to its end."
        kept "Batches in hand are finished with the version that runs, and leases are released."
        next "Deploy to the workers that go on, or start it again with the new file."

    NOT_TAKEN = "SM1406" "The changed configuration is not taken"
        means "A worker has read its configuration again, and it is not good; the reason follows."
        kept "Nothing has changed: the worker goes on with the configuration and the plugins that it has. The next start needs \
            a good file."
        next "Correct the file; it is read again when it changes. `shardmill check` judges it in the same way."
}
