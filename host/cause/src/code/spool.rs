//! Spools: records on the disk that wait for their stream.

use super::codes;

codes! {
    IN_USE = "SM0501" "The spool is in use by another process"
        means "A spool's folder is for one process at a time, and the message names the one that has it, as far as it is \
            known."
        kept "Nothing in the folder was read or changed."
        next "Wait for that process to end, or take another folder."

    NOT_THERE = "SM0502" "There is no spool in the folder"
        means "The folder is not there, or has nothing of a spool in it. `list`, `drain` and `drop` make none."
        kept "Nothing was made or changed."
        next "Check the path. `shardmill put --spool FOLDER` makes one."

    OPTIONS = "SM0503" "An option of the spool is out of its bounds"
        means "A spool may take 1 MiB to 1 TiB of the disk, and what was asked for is less or more."
        kept "The spool was not opened, and nothing was sent."
        next "Choose a size within the bounds, eight times the largest record at least."

    FULL = "SM0504" "The spool takes as much of the disk as it may"
        means "Its stream has not taken records for so long that they fill the space which the spool is allowed."
        kept "Everything that was accepted is on the disk. What comes now is not accepted, or takes the place of the oldest \
            records where that was chosen."
        next "See why the stream does not take records (`shardmill spool list` shows the reason), or allow more bytes."

    TOO_LARGE = "SM0505" "A record is larger than the spool may ever take"
        means "The record would not fit into the spool even if nothing else were in it."
        kept "Only this record is refused, and it was not stored. What is in the spool stays."
        next "Allow eight times the largest record at least."

    DISK_FULL = "SM0506" "The disk is full"
        means "The spool may take more, and the file system has no room, or the user's quota is used up."
        kept "What the spool accepted is kept, and no record is called stored that is not."
        next "Make room on that disk. The spool goes on by itself."

    DAMAGED = "SM0507" "A file of the spool does not hold what was written to it"
        means "The disk, or another program, has changed the file. Each record has a checksum, so that it is found."
        kept "Nothing of it is sent as if it were good, and the file is left as it is."
        next "Keep a copy of the folder. `sqlite3 FILE .recover` shows what can still be read. A new spool begins where \
            the folder is moved away."

    FOREIGN = "SM0508" "A file in the folder is no spool that this version reads"
        means "It was written by another program, or by a later version of Shardmill."
        kept "The file was not changed."
        next "Take another folder, or the version that wrote it."

    NOT_PRIVATE = "SM0509" "The folder is not safe for payloads"
        means "Other users of the machine could read or change what is in it, or it is a link that leads elsewhere."
        kept "Nothing was written there."
        next "Take a folder that belongs to this user alone (`chmod 700`), and no link."

    IO = "SM0510" "The operating system refuses something in the spool's folder"
        means "Opening, writing or syncing a file failed for the reason that the message gives."
        kept "What was accepted before is kept. Records of this call are not called stored unless they are on the disk."
        next "Look at the folder's owner, its mode and its disk. A disk that refuses syncs is failing."

    CLOSED = "SM0511" "The spool is closed"
        means "The program has closed it, or the thread that writes to it broke down."
        kept "What was accepted before is on the disk, and is sent when the spool is opened again."
        next "Open it again. If it was not closed on purpose, please report it with the log."
}
