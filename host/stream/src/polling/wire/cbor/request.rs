//! A request's body, written as the Java SDK does it: a map up to a break.

use aws_smithy_schema::Schema;
use aws_smithy_schema::serde::{SerdeError, SerializableStruct, ShapeSerializer};
use aws_smithy_types::{BigDecimal, BigInteger, Blob, DateTime, Document};

use super::BREAK;

const MAP_UP_TO_BREAK: u8 = 0xbf;

/// Writes a structure whose members are texts, numbers, booleans and blobs, as those of a GetRecords are.
pub(in super::super) fn write(input: &dyn SerializableStruct, schema: &Schema<'_>) -> Result<Vec<u8>, SerdeError> {
    let mut writer = Writer { body: Vec::new() };
    writer.write_struct(schema, input)?;
    Ok(writer.body)
}

struct Writer {
    body: Vec<u8>,
}

// === impl Writer ===

impl Writer {
    fn head(&mut self, major: u8, argument: u64) {
        let major = major << 5;
        match argument {
            0..24 => self.body.push(major | argument as u8),
            24..0x100 => self.body.extend([major | 24, argument as u8]),
            0x100..0x1_0000 => {
                self.body.push(major | 25);
                self.body.extend((argument as u16).to_be_bytes());
            }
            0x1_0000..0x1_0000_0000 => {
                self.body.push(major | 26);
                self.body.extend((argument as u32).to_be_bytes());
            }
            _ => {
                self.body.push(major | 27);
                self.body.extend(argument.to_be_bytes());
            }
        }
    }

    fn string(&mut self, major: u8, bytes: &[u8]) {
        self.head(major, bytes.len() as u64);
        self.body.extend_from_slice(bytes);
    }

    /// The member's name, where there is one.
    fn name(&mut self, schema: &Schema<'_>) {
        if let Some(name) = schema.member_name() {
            self.string(3, name.as_bytes());
        }
    }

    fn whole_number(&mut self, schema: &Schema<'_>, number: i64) -> Result<(), SerdeError> {
        self.name(schema);
        match u64::try_from(number) {
            Ok(number) => self.head(0, number),
            Err(_) => self.head(1, !number as u64),
        }
        Ok(())
    }

    fn unsupported(schema: &Schema<'_>) -> Result<(), SerdeError> {
        Err(SerdeError::unsupported(format!("{} is not written in CBOR", schema.shape_id().as_str())))
    }
}

impl ShapeSerializer for Writer {
    fn write_struct(&mut self, schema: &Schema<'_>, value: &dyn SerializableStruct) -> Result<(), SerdeError> {
        self.name(schema);
        self.body.push(MAP_UP_TO_BREAK);
        value.serialize_members(self)?;
        self.body.push(BREAK);
        Ok(())
    }

    fn write_boolean(&mut self, schema: &Schema<'_>, value: bool) -> Result<(), SerdeError> {
        self.name(schema);
        self.body.push(if value { 0xf5 } else { 0xf4 });
        Ok(())
    }

    fn write_byte(&mut self, schema: &Schema<'_>, value: i8) -> Result<(), SerdeError> {
        self.whole_number(schema, value.into())
    }

    fn write_short(&mut self, schema: &Schema<'_>, value: i16) -> Result<(), SerdeError> {
        self.whole_number(schema, value.into())
    }

    fn write_integer(&mut self, schema: &Schema<'_>, value: i32) -> Result<(), SerdeError> {
        self.whole_number(schema, value.into())
    }

    fn write_long(&mut self, schema: &Schema<'_>, value: i64) -> Result<(), SerdeError> {
        self.whole_number(schema, value)
    }

    fn write_string(&mut self, schema: &Schema<'_>, value: &str) -> Result<(), SerdeError> {
        self.name(schema);
        self.string(3, value.as_bytes());
        Ok(())
    }

    fn write_blob(&mut self, schema: &Schema<'_>, value: Blob) -> Result<(), SerdeError> {
        self.name(schema);
        self.string(2, value.as_ref());
        Ok(())
    }

    fn write_list(
        &mut self,
        schema: &Schema<'_>,
        _: &dyn Fn(&mut dyn ShapeSerializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_map(
        &mut self,
        schema: &Schema<'_>,
        _: &dyn Fn(&mut dyn ShapeSerializer) -> Result<(), SerdeError>,
    ) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_float(&mut self, schema: &Schema<'_>, _: f32) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_double(&mut self, schema: &Schema<'_>, _: f64) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_big_integer(&mut self, schema: &Schema<'_>, _: &BigInteger) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_big_decimal(&mut self, schema: &Schema<'_>, _: &BigDecimal) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_timestamp(&mut self, schema: &Schema<'_>, _: &DateTime) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_document(&mut self, schema: &Schema<'_>, _: &Document) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }

    fn write_null(&mut self, schema: &Schema<'_>) -> Result<(), SerdeError> {
        Self::unsupported(schema)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::operation::get_records::GetRecordsInput;

    use super::*;

    #[test]
    fn a_request_is_a_map_up_to_a_break() {
        let mut expected = vec![MAP_UP_TO_BREAK];
        let input = GetRecordsInput::builder().shard_iterator("AAAA").limit(10_000).build().unwrap();
        expected.extend_from_slice(b"\x6dShardIterator\x64AAAA\x65Limit\x19\x27\x10\xff");
        assert_eq!(write(&input, GetRecordsInput::SCHEMA).unwrap(), expected);
    }

    #[test]
    fn numbers_of_every_length_are_written() {
        let written = |number| {
            let mut writer = Writer { body: Vec::new() };
            writer.write_long(&aws_smithy_schema::prelude::LONG, number).unwrap();
            writer.body
        };
        assert_eq!(written(23), [0x17]);
        assert_eq!(written(-100), [0x38, 99]);
        assert_eq!(written(500), [0x19, 1, 0xf4]);
        assert_eq!(written(1 << 16), [0x1a, 0, 1, 0, 0]);
        assert_eq!(written(i64::MIN), [0x3b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }
}
