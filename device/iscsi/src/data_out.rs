//! The answer to an R2T: the bytes that it asks for, in one or more Data-Out PDUs (RFC 7143, 11.7
//! and 11.8).

use crate::header::Bhs;

/// The bytes that an R2T has asked for and that are not in a Data-Out yet.
#[derive(Clone, Copy, Debug)]
pub struct Solicited {
    request: Bhs,
    offset: u32,
    left: u32,
    number: u32,
}

/// A Data-Out PDU that answers an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// The header of the PDU.
    pub header: Bhs,
    /// The offset of its data in the buffer of the command.
    pub offset: u32,
    /// The number of bytes of data.
    pub length: u32,
}

impl Solicited {
    /// Returns the bytes that an R2T asks for.
    #[must_use]
    pub fn of(request: Bhs) -> Self {
        let (offset, left) = (request.offset(), request.desired_len());
        Self { request, offset, left, number: 0 }
    }

    /// Returns the tag of its command.
    #[must_use]
    pub fn task_tag(&self) -> u32 {
        self.request.task_tag()
    }

    /// Returns the next Data-Out, with at most `most` bytes, or `None` if there are no more.
    pub fn next(&mut self, most: u32) -> Option<DataOut> {
        let length = self.left.min(most);
        if length == 0 {
            return None;
        }
        let (offset, number) = (self.offset, self.number);
        self.left -= length;
        self.offset = self.offset.wrapping_add(length);
        self.number = self.number.wrapping_add(1);
        let header = Bhs::data_out(&self.request, number, offset, length, self.left == 0);
        Some(DataOut { header, offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_all_bytes_in_pieces() {
        let mut request = [0; 48];
        request[0] = 0x31;
        request[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        request[16..20].copy_from_slice(&[0xa, 0xb, 0xc, 0xd]);
        request[20..24].copy_from_slice(&[9, 9, 9, 9]);
        request[24..28].copy_from_slice(&[0, 0, 0, 77]);
        request[40..44].copy_from_slice(&1000u32.to_be_bytes());
        request[44..48].copy_from_slice(&1200u32.to_be_bytes());
        let mut solicited = Solicited::of(Bhs(request));
        assert_eq!(solicited.task_tag(), 0x0a0b_0c0d);
        let all: Vec<_> = std::iter::from_fn(|| solicited.next(512)).collect();
        let places: Vec<_> = all.iter().map(|it| (it.offset, it.length)).collect();
        assert_eq!(places, [(1000, 512), (1512, 512), (2024, 176)]);
        for (number, DataOut { header: Bhs(header), offset, length }) in all.iter().enumerate() {
            let last = if number == 2 { 0x80 } else { 0 };
            assert_eq!((header[0], header[1]), (5, last));
            assert_eq!(header[4..8], length.to_be_bytes());
            assert_eq!(header[8..24], request[8..24]);
            assert_eq!(header[28..32], [0, 0, 0, 77], "the status that is expected next");
            assert_eq!(header[36..40], (number as u32).to_be_bytes());
            assert_eq!(header[40..44], offset.to_be_bytes());
        }
    }
}
