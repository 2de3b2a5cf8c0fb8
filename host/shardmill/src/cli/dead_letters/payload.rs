//! Payloads, as a terminal can be trusted with them.

use std::fmt::Write as _;

use crate::cli::text::push_escaped;

/// How much of a payload is shown that is no text, in bytes.
const SHOWN_BYTES: usize = 1 << 10;
const BYTES_OF_A_LINE: usize = 16;

/// The text that a payload is, if it is one, line by line.
pub(super) fn as_text(payload: &[u8]) -> Option<String> {
    let is_text = |text: &&str| !text.chars().any(|character| character.is_control() && !"\n\r\t".contains(character));
    let text = std::str::from_utf8(payload).ok().filter(is_text)?;
    let mut lines = String::with_capacity(text.len());
    push_escaped(&mut lines, text, |character| "\n\t".contains(character));
    Some(lines)
}

/// Bytes in hexadecimal and in ASCII, as far as they are shown.
pub(super) fn hex_dump(payload: &[u8]) -> String {
    let mut dump = String::new();
    for (index, bytes) in payload[..payload.len().min(SHOWN_BYTES)].chunks(BYTES_OF_A_LINE).enumerate() {
        let hex: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        let ascii: String =
            bytes.iter().map(|byte| if (b' '..=b'~').contains(byte) { *byte as char } else { '.' }).collect();
        // A text takes all that is written to it.
        let _ = writeln!(dump, "{:08x} {hex:<48}  {ascii}", index * BYTES_OF_A_LINE);
    }
    if payload.len() > SHOWN_BYTES {
        let more = payload.len() - SHOWN_BYTES;
        let _ = writeln!(dump, "… and {more} bytes more; --payload writes all of them");
    }
    dump.truncate(dump.trim_end().len());
    dump
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_and_not_sent() {
        assert_eq!(as_text("é\n\t".as_bytes()).as_deref(), Some("é\n\t"));
        assert_eq!(as_text("paid\r\u{2067}unpaid".as_bytes()).as_deref(), Some("paid\\r\\u{2067}unpaid"));
        for payload in [&b"\xff"[..], b"a\x1b[2J", b"\0"] {
            assert_eq!(as_text(payload), None);
        }
    }

    #[test]
    fn bytes_are_shown_in_both_ways() {
        let dump = hex_dump(b"\0ABCDEFGHIJKLMNOPQ");
        let expected = "00000000  00 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f  .ABCDEFGHIJKLMNO\n\
                        00000010  50 51                                            PQ";
        assert_eq!(dump, expected);
        let long = hex_dump(&[7; SHOWN_BYTES + 5]);
        assert_eq!(long.lines().count(), SHOWN_BYTES / BYTES_OF_A_LINE + 1);
        assert!(long.ends_with("… and 5 bytes more; --payload writes all of them"));
        assert_eq!(hex_dump(b""), "");
    }
}
