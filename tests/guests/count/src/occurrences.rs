//! What the counting guests do to each payload. The guest in rows includes this file, so that both forms and the native
//! call run the same code.

/// How often a byte occurs in a payload.
pub fn occurrences(data: &[u8], byte: u8) -> u64 {
    data.iter().filter(|found| **found == byte).count() as u64
}
