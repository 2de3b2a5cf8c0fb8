//! Dead letters.

use super::codes;

codes! {
    NOT_A_LETTER = "SM1601" "A line or a record is no dead letter"
        means "It is something else, damaged, or a letter of a later version."
        kept "It stays where it is. Other letters of the place are shown and sent."
        next "Take the version that wrote it, or look at the file: each line is one letter in JSON."

    PLACE = "SM1602" "Dead letters cannot be read from their place"
        means "The folder is not there or may not be read, or some of its files cannot be."
        kept "No letter was changed or sent; those in files that can be read are shown."
        next "Let this user read the folder, or name another one with `--folder`."

    NO_PLACE = "SM1603" "It is not known where the processor's dead letters are"
        means "The configuration has no such processor, or names no place for its letters, or one that cannot be read again."
        kept "Nothing was read or sent."
        next "Add `[processors.NAME.dead-letters]`, or name the folder or stream in the command."

    NOT_REPLAYED = "SM1604" "Not all dead letters were sent again"
        means "The stream refuses some of the records, or does not exist, or the command was to send them somewhere else than \
            they come from."
        kept "Letters stay in their place whatever happens. Those that were sent are noted, and not sent again by the same \
            command."
        next "Mend the reason, and give the same command again; `--to STREAM` sends them where you say."

    NO_LETTER = "SM1605" "No dead letter, or more than one, has that id"
        means "An id may be cut short as long as one letter alone begins so."
        kept "No letter was changed or sent."
        next "`shardmill dead-letters list` shows the ids; write more of it."

    MARKS = "SM1606" "Which letters were sent again cannot be noted"
        means "The file for that cannot be opened or written, or another replay has it."
        kept "Records that were sent stay sent, and letters stay in their place. Without the note the next replay would send \
            them once more."
        next "Name another file with `--marks FILE`, or wait for the other replay to end."
}
