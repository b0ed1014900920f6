//! A minimal protobuf encoder.

/// A message, written field by field.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80); // CAST: seven bits at a time
            value >>= 7;
        }
        self.0.push(value as u8); // CAST: below 0x80
    }

    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(value);
    }

    pub(super) fn signed(&mut self, field: u64, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    pub(super) fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | FIXED_64);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u64, value: f64) {
        self.fixed(field, value.to_bits());
    }

    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Repeated numbers in one field.
    #[cfg(feature = "pprof")]
    pub(super) fn packed(&mut self, field: u64, values: impl Iterator<Item = u64>) {
        let mut packed = Self::default();
        values.for_each(|value| packed.varint(value));
        self.message(field, &packed);
    }

    pub(super) fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of protobuf's documentation of its encoding.
    #[test]
    fn bytes_match_the_specification() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.as_bytes(), [0x08, 0x96, 0x01]);
        message.clear();
        message.text(2, "testing");
        assert_eq!(message.as_bytes(), [0x12, 7, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        message.clear();
        message.signed(1, -2);
        assert_eq!(
            message.as_bytes(),
            [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]
        );
    }
}
