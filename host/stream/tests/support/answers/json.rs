use rand::Rng;

use super::{Author, Value};

// === impl Author ===

impl Author {
    pub(crate) fn json(&mut self, value: &Value) -> Vec<u8> {
        let mut text = String::new();
        self.json_value(value, &mut text);
        self.space(&mut text);
        text.into_bytes()
    }

    fn space(&mut self, text: &mut String) {
        if self.one_in(6) {
            let spaces = [" ", "\t", "\n", "\r\n", "   "];
            text.push_str(spaces[self.rng.random_range(0..spaces.len())]);
        }
    }

    fn json_value(&mut self, value: &Value, text: &mut String) {
        self.space(text);
        match value {
            Value::Null => text.push_str("null"),
            Value::Bool(value) => text.push_str(&value.to_string()),
            Value::Integer(number) => text.push_str(&number.to_string()),
            Value::Number(number) => text.push_str(number),
            Value::Text(characters) => self.json_text(characters, text),
            Value::Data(bytes) => self.json_text(&base64_simd::STANDARD.encode_to_string(bytes), text),
            Value::Time(milliseconds) => {
                let seconds = *milliseconds as f64 / 1_000.0;
                match self.rng.random_range(0..3) {
                    0 => text.push_str(&format!("{seconds:e}")),
                    1 => text.push_str(&format!("{seconds:.3}")),
                    _ => text.push_str(&seconds.to_string()),
                }
            }
            Value::List(values) => {
                text.push('[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    self.json_value(value, text);
                    self.space(text);
                }
                self.space(text);
                text.push(']');
            }
            Value::Map(fields) => {
                text.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    self.space(text);
                    self.json_text(name, text);
                    self.space(text);
                    text.push(':');
                    self.json_value(value, text);
                    self.space(text);
                }
                self.space(text);
                text.push('}');
            }
        }
    }

    fn json_text(&mut self, characters: &str, text: &mut String) {
        let freely = self.one_in(4);
        text.push('"');
        for character in characters.chars() {
            let short = match character {
                '"' => Some("\\\""),
                '\\' => Some("\\\\"),
                '/' => Some("\\/"),
                '\u{8}' => Some("\\b"),
                '\u{c}' => Some("\\f"),
                '\n' => Some("\\n"),
                '\r' => Some("\\r"),
                '\t' => Some("\\t"),
                _ => None,
            };
            let must = matches!(character, '"' | '\\');
            match short {
                Some(short) if must || self.one_in(2) => text.push_str(short),
                _ if freely && self.one_in(3) => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let lower = self.one_in(2);
                        text.push_str(&if lower { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
                    }
                }
                _ => text.push(character),
            }
        }
        text.push('"');
    }
}
