/// How much a spool may take, and what happens then.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// What the spool's files may take on the disk, in bytes: 1 MiB to 1 TiB. One record may take an eighth of that; with
    /// 64 MiB and more, any that Kinesis takes. In a configuration a number of bytes, or a size such as `"2 GiB"`.
    #[serde(deserialize_with = "shardmill_units::size::deserialize")]
    pub bytes: u64,
    /// What happens when that is taken.
    pub when_full: Full,
}

/// What a spool does that is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Full {
    /// Refuses what is to be stored, and gives it back.
    #[default]
    Refuse,
    /// Drops the records that were stored first, of whichever stream, and says so.
    DropOldest,
}

/// An option is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`bytes` of a spool is {0}; {min} (1 MiB) to {max} (1 TiB) are allowed", min = Options::MIN_BYTES, max = Options::MAX_BYTES)]
pub struct InvalidOptions(u64);

// === impl Options ===

impl Options {
    pub(crate) const MIN_BYTES: u64 = 1 << 20;
    pub(crate) const MAX_BYTES: u64 = 1 << 40;

    /// Whether all of them are within their bounds.
    pub fn check(&self) -> Result<(), InvalidOptions> {
        if (Self::MIN_BYTES..=Self::MAX_BYTES).contains(&self.bytes) { Ok(()) } else { Err(InvalidOptions(self.bytes)) }
    }
}

impl Default for Options {
    /// 1 GiB, and no record is dropped.
    fn default() -> Self {
        Self { bytes: 1 << 30, when_full: Full::Refuse }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_what_code_says() {
        let read = |text: &str| toml::from_str::<Options>(text);
        assert_eq!(read("").unwrap(), Options::default());
        let expected = Options { bytes: 2 << 30, when_full: Full::DropOldest };
        assert_eq!(read("bytes = \"2 GiB\"\nwhen-full = \"drop-oldest\"").unwrap(), expected);
        assert_eq!(read(&toml::to_string(&expected).unwrap()).unwrap(), expected);
        assert_eq!(read("bytes = 1048576").unwrap().bytes, 1 << 20);
        for wrong in ["bytes = -1", "bytes = \"much\"", "when-full = \"wait\"", "limit = 5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bounds_are_checked() {
        for (bytes, is_good) in
            [(0, false), ((1 << 20) - 1, false), (1 << 20, true), (1 << 40, true), (u64::MAX, false)]
        {
            let options = Options { bytes, ..Options::default() };
            assert_eq!(options.check().is_ok(), is_good, "{bytes}");
        }
        let text = InvalidOptions(7).to_string();
        assert_eq!(text, "`bytes` of a spool is 7; 1048576 (1 MiB) to 1099511627776 (1 TiB) are allowed");
    }
}
