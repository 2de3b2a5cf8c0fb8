use super::super::Malformed;
use super::super::walk::{Source, known};
use super::Cbor;
use super::head::Major;
use crate::polling::decode;

/// An error of the service, as its body tells it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct ServiceError {
    /// May have a namespace before it and more behind it.
    pub(in super::super) code: Option<String>,
    pub(in super::super) message: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Code,
    Type,
    Message,
}

/// The names under which services send them, as the SDK knows them in JSON.
const FIELDS: [(&str, Field); 5] = [
    ("code", Field::Code),
    ("__type", Field::Type),
    ("message", Field::Message),
    ("Message", Field::Message),
    ("errorMessage", Field::Message),
];

/// Reads the body of an error. An empty one, or one that is no map, tells nothing.
pub(in super::super) fn read_error(body: &[u8]) -> Result<ServiceError, Malformed> {
    let mut body = body.to_vec();
    let mut cbor = Cbor::new(&mut body);
    if cbor.rest().first().is_none_or(|first| first >> 5 != 5) {
        return Ok(ServiceError::default());
    }
    let (mut code, mut kind, mut message) = (None, None, None);
    let mut fields = cbor.map()?;
    while cbor.item(&mut fields)? {
        let name = cbor.text()?;
        let field = known(&FIELDS, decode::utf8(cbor.body(), name)?);
        let is_text = cbor.rest().first().is_some_and(|first| first >> 5 == 3);
        let place = match field {
            Some(Field::Code) if is_text => &mut code,
            Some(Field::Type) if is_text => &mut kind,
            Some(Field::Message) if is_text => &mut message,
            _ => {
                cbor.skip(1)?;
                continue;
            }
        };
        let text = cbor.string(Major::Text, "a text")?;
        *place = Some(decode::utf8(cbor.body(), text)?.to_owned());
    }
    Ok(ServiceError { code: code.or(kind), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: &str, message: &str) -> ServiceError {
        ServiceError { code: Some(code.into()), message: Some(message.into()) }
    }

    #[test]
    fn code_and_message_are_found_whatever_else_is_there() {
        let plain = b"\xa2\x66__type\x63Foo\x67message\x62go";
        assert_eq!(read_error(plain).unwrap(), error("Foo", "go"));
        let long = b"\xbf\x64code\x7f\x62Ba\x61r\xff\x66__type\x63Foo\x65other\x82\x01\xf5\x67Message\x62go\xff";
        assert_eq!(read_error(long).unwrap(), error("Bar", "go"));
        assert_eq!(read_error(b"\xa1\x66__type\x01").unwrap(), ServiceError::default());
        assert_eq!(read_error(b"").unwrap(), ServiceError::default());
        assert_eq!(read_error(b"<html>").unwrap(), ServiceError::default());
        assert!(read_error(b"\xa2\x66__type\x63Foo").unwrap_err().to_string().contains("the answer ends"));
    }
}
