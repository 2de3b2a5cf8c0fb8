use std::fmt;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a component's bytes: which guest this is, whatever its file is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

// === impl Digest ===

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest that these 64 hexadecimal digits are, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let digits: [u8; 64] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hexadecimal digits, enough to tell guests apart in a log.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_sha_256() {
        // SHA-256("abc"), from FIPS 180-2.
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), hex);
        assert_eq!(Digest::of(b"abc").short(), &hex[..12]);
        assert_eq!(Digest::parse(hex), Some(Digest::of(b"abc")));
        assert_eq!(Digest::parse(&hex.to_uppercase()), Some(Digest::of(b"abc")));
        for other in ["", &hex[1..], &format!("{hex}0"), &hex.replace('b', "g"), &hex.replace("ba", "é")] {
            assert_eq!(Digest::parse(other), None, "{other}");
        }
    }
}
