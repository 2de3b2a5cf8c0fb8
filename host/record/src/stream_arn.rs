use std::fmt;
use std::sync::Arc;

/// The ARN of a stream, for example `arn:aws:kinesis:eu-west-1:123456789012:stream/orders`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamArn {
    text: Arc<str>,
    region: (usize, usize),
    account: (usize, usize),
    /// Where the name begins.
    name: usize,
}

/// Why a text is not a stream's ARN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStreamArn {
    /// It has another form.
    #[error(
        "`{0}` is not a stream's ARN: `arn:aws:kinesis:REGION:ACCOUNT:stream/NAME` is expected, also with the partitions `aws-cn` and `aws-us-gov`"
    )]
    Form(String),
    /// It names a consumer of a stream.
    #[error("`{0}` names a consumer of a stream (enhanced fan-out): name the stream alone, which is `{1}`")]
    Consumer(String, String),
}

const MAX_SHOWN: usize = 300;

// === impl StreamArn ===

impl StreamArn {
    /// Takes `arn:PARTITION:kinesis:REGION:ACCOUNT:stream/NAME`: a partition that begins with `aws`, an account of 12
    /// digits, and a name of 1 to 128 of `[a-zA-Z0-9_.-]`.
    pub fn parse(text: &str) -> Result<Self, InvalidStreamArn> {
        let invalid = || InvalidStreamArn::Form(text.chars().take(MAX_SHOWN).collect());
        let mut parts = text.splitn(6, ':');
        let mut next = || parts.next().ok_or_else(invalid);
        let (arn, partition, service, region, account, resource) =
            (next()?, next()?, next()?, next()?, next()?, next()?);
        let is_word =
            |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_head = arn == "arn" && service == "kinesis" && partition.starts_with("aws") && is_word(partition);
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        let path = resource.strip_prefix("stream/").ok_or_else(invalid)?;
        if !is_head || !is_word(region) || !is_account {
            return Err(invalid());
        }
        if let Some((name, rest)) = path.split_once('/')
            && is_name(name)
            && rest.starts_with("consumer/")
        {
            let stream = &text[..text.len() - rest.len() - 1];
            return Err(InvalidStreamArn::Consumer(text.chars().take(MAX_SHOWN).collect(), stream.to_owned()));
        }
        if !is_name(path) {
            return Err(invalid());
        }
        let region_at = arn.len() + partition.len() + service.len() + 3;
        let account_at = region_at + region.len() + 1;
        Ok(Self {
            text: text.into(),
            region: (region_at, region_at + region.len()),
            account: (account_at, account_at + account.len()),
            name: text.len() - path.len(),
        })
    }

    /// Whether a text that names a stream is meant as an ARN: names hold no colon.
    pub fn is_meant(text: &str) -> bool {
        text.contains(':')
    }

    /// The ARN as the API writes it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The region that the stream is in.
    pub fn region(&self) -> &str {
        &self.text[self.region.0..self.region.1]
    }

    /// The account that the stream belongs to, 12 digits.
    pub fn account(&self) -> &str {
        &self.text[self.account.0..self.account.1]
    }

    /// The stream's name.
    pub fn name(&self) -> &str {
        &self.text[self.name..]
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(allowed)
}

impl fmt::Display for StreamArn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for StreamArn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StreamArn({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_arn_tells_region_account_and_name_in_every_partition() {
        for (partition, region) in [
            ("aws", "eu-west-1"),
            ("aws-cn", "cn-north-1"),
            ("aws-us-gov", "us-gov-west-1"),
            ("aws-iso-b", "us-isob-east-1"),
        ] {
            let text = format!("arn:{partition}:kinesis:{region}:123456789012:stream/orders.v_1-x");
            let arn = StreamArn::parse(&text).unwrap();
            assert_eq!((arn.region(), arn.account(), arn.name()), (region, "123456789012", "orders.v_1-x"));
            assert_eq!(arn.as_str(), text);
        }
    }

    #[test]
    fn what_is_no_streams_arn_is_refused() {
        for text in [
            "",
            "orders",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/a b",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/a/b",
            "arn:aws:kinesis:eu-west-1:123456789012:orders",
            "arn:aws:kinesis:eu-west-1:12345:stream/orders",
            "arn:aws:kinesis::123456789012:stream/orders",
            "arn:aws:dynamodb:eu-west-1:123456789012:stream/orders",
            "arn:gcp:kinesis:eu-west-1:123456789012:stream/orders",
            "arn:aws:kinesis:eu-west-1:123456789012",
        ] {
            let error = StreamArn::parse(text).unwrap_err();
            assert!(matches!(error, InvalidStreamArn::Form(_)), "{text}: {error}");
        }
        let consumer = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1700000000";
        let error = StreamArn::parse(consumer).unwrap_err().to_string();
        assert!(error.contains("`arn:aws:kinesis:eu-west-1:123456789012:stream/orders`"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_a_panic(text in ".{0,80}", tail in "[:/a-zé-]{0,30}") {
            let _judged = StreamArn::parse(&text);
            let _judged = StreamArn::parse(&format!("arn:aws:kinesis:eu-west-1:123456789012:stream/{tail}"));
        }
    }
}
