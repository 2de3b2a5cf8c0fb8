use rand::Rng;

use super::{Author, Value};

// === impl Author ===

impl Author {
    pub(crate) fn cbor(&mut self, value: &Value) -> Vec<u8> {
        let mut bytes = if self.one_in(10) { vec![0xd9, 0xd9, 0xf7] } else { Vec::new() };
        self.cbor_value(value, &mut bytes);
        bytes
    }

    fn cbor_value(&mut self, value: &Value, bytes: &mut Vec<u8>) {
        match value {
            Value::Null => bytes.push(if self.one_in(3) { 0xf7 } else { 0xf6 }),
            Value::Bool(value) => bytes.push(if *value { 0xf5 } else { 0xf4 }),
            Value::Integer(number) if *number < 0 => self.cbor_head(1, !*number as u64, bytes),
            Value::Integer(number) => self.cbor_head(0, *number as u64, bytes),
            Value::Number(number) => {
                bytes.push(0xfb);
                bytes.extend(number.parse::<f64>().unwrap_or(0.0).to_be_bytes());
            }
            Value::Text(characters) => self.cbor_text(characters, bytes),
            Value::Data(data) if self.one_in(4) => {
                bytes.push(0x5f);
                for chunk in data.chunks(self.rng.random_range(1..50)) {
                    self.cbor_string(2, chunk, bytes);
                }
                bytes.push(0xff);
            }
            Value::Data(data) => self.cbor_string(2, data, bytes),
            Value::Time(milliseconds) => {
                if self.one_in(2) {
                    bytes.push(0xc1);
                }
                if milliseconds.is_multiple_of(1_000) && self.one_in(2) {
                    self.cbor_head(0, milliseconds / 1_000, bytes);
                } else if self.one_in(4) {
                    bytes.push(0xfb);
                    bytes.extend((*milliseconds as f64 / 1_000.0).to_be_bytes());
                } else {
                    self.cbor_head(0, *milliseconds, bytes);
                }
            }
            Value::List(values) => {
                let ends = self.cbor_container(4, values.len(), bytes);
                values.iter().for_each(|value| self.cbor_value(value, bytes));
                bytes.extend(ends);
            }
            Value::Map(fields) => {
                let ends = self.cbor_container(5, fields.len(), bytes);
                for (name, value) in fields {
                    self.cbor_text(name, bytes);
                    self.cbor_value(value, bytes);
                }
                bytes.extend(ends);
            }
        }
    }

    /// The break that ends it, if there has to be one.
    fn cbor_container(&mut self, major: u8, length: usize, bytes: &mut Vec<u8>) -> Option<u8> {
        if self.one_in(2) {
            bytes.push(major << 5 | 31);
            return Some(0xff);
        }
        self.cbor_head(major, length as u64, bytes);
        None
    }

    fn cbor_text(&mut self, text: &str, bytes: &mut Vec<u8>) {
        if self.one_in(6) {
            bytes.push(0x7f);
            for character in text.chars() {
                self.cbor_string(3, character.encode_utf8(&mut [0; 4]).as_bytes(), bytes);
            }
            bytes.push(0xff);
        } else {
            self.cbor_string(3, text.as_bytes(), bytes);
        }
    }

    fn cbor_string(&mut self, major: u8, string: &[u8], bytes: &mut Vec<u8>) {
        self.cbor_head(major, string.len() as u64, bytes);
        bytes.extend_from_slice(string);
    }

    /// In the shortest form, or in a longer one.
    fn cbor_head(&mut self, major: u8, argument: u64, bytes: &mut Vec<u8>) {
        let least = match argument {
            0..24 => 0,
            24..0x100 => 1,
            0x100..0x1_0000 => 2,
            0x1_0000..0x1_0000_0000 => 3,
            _ => 4,
        };
        let form = if self.one_in(8) { self.rng.random_range(least..=4) } else { least };
        let major = major << 5;
        match form {
            0 => bytes.push(major | argument as u8),
            1 => bytes.extend([major | 24, argument as u8]),
            2 => {
                bytes.push(major | 25);
                bytes.extend((argument as u16).to_be_bytes());
            }
            3 => {
                bytes.push(major | 26);
                bytes.extend((argument as u32).to_be_bytes());
            }
            _ => {
                bytes.push(major | 27);
                bytes.extend(argument.to_be_bytes());
            }
        }
    }
}
