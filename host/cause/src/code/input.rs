//! What `shardmill put` reads, and what becomes of it.

use super::codes;

codes! {
    UNREADABLE = "SM1301" "The input cannot be read"
        means "A file is not there, may not be read, is a folder, or fails in the middle."
        kept "Files are looked at before anything is sent. What was read before a failure in the middle has been sent, and \
            the message has the first line that was not."
        next "Correct the path, or go on from that line once it can be read."

    BAD_LINES = "SM1302" "Lines of the input are no records"
        means "A line is not what `--format` says: no JSON, no field for the key, another number of columns, not UTF-8, or \
            longer than it may be."
        kept "Lines that are good are sent, in their order; those that are not are counted and named. The input is never \
            changed."
        next "`--results FILE` tells of each line. Correct them, and put them alone."

    COLUMNS = "SM1303" "The columns of a file are not those that were asked for"
        means "The first row names no such column, names one twice, or cannot be taken for names; without a header a column is \
            named by its number."
        kept "No record of this file was sent; files before it were."
        next "Take a name that the message lists, or say `--no-header` and the column's number."

    ROW_TOO_LONG = "SM1304" "A row has no end"
        means "A row of a CSV file is longer than any record may be: a quote that was opened is not closed, as a rule."
        kept "What stands before that row has been sent. The message has the line where the row begins."
        next "Close the quote, and put the file from that line on."

    RESULTS = "SM1305" "The results cannot be kept where they should be"
        means "The file for `--results` is there already, is one that is read, cannot be written, or nobody reads it any more."
        kept "At the start nothing was sent. Later, what was sent stays sent, and the message says from where on nothing is \
            told."
        next "Name another file, or say `--overwrite`."

    NOT_STORED = "SM1306" "Records are not stored"
        means "The stream did not take them: they are too large, break a rule, or it did not answer for too long."
        kept "All others are stored. The message has the first that is not, with its file and line, and `--results` has each."
        next "Correct them or mend the cause, and put the input again from that line; `--spool FOLDER` keeps records on the \
            disk through an outage."

    WAITS = "SM1307" "Records wait in the spool"
        means "The stream does not take records now, so they are on the disk."
        kept "All records that were read are stored or in the spool; none is lost."
        next "`shardmill spool drain --folder FOLDER` sends them when the stream takes records again, and so does the next \
            `shardmill put` with that spool."

    FORMAT = "SM1308" "What the input is cannot be told"
        means "The names of the files say different things, or an option belongs to another format."
        kept "Nothing was read and nothing was sent."
        next "Say `--format lines`, `jsonl`, `csv` or `tail-json`."
}
