//! The position of a command region's key in the messages of a QP.

use vrnic_abi::admin::TagForm;

/// All ones: the message does not belong to a command.
const NO_TAG: u32 = u32::MAX;
/// Number of bytes of a tag.
pub const TAG_LEN: u64 = 4;
/// Offset of the initiator task tag in an iSCSI basic header segment (RFC 7143, 11.4 and 11.7).
const BHS_TAG: u64 = 16;
const BHS_OPCODE_MASK: u8 = 0x3f;
const SCSI_RESPONSE: u8 = 0x21;
const SCSI_DATA_IN: u8 = 0x25;
const DATA_IN_STATUS: u8 = 1;

/// The form of a QP's commands and responses.
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    form: TagForm,
    offset: u32,
}

impl Tags {
    /// Returns tags of this form at `offset`.
    #[must_use]
    pub const fn new(form: TagForm, offset: u32) -> Self {
        Self { form, offset }
    }

    /// Returns whether the QP has commands.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.form != TagForm::None
    }

    /// Returns the position of the tag in a command of `length` bytes. `wanted` is the position in
    /// the work request. Returns `None` if the tag does not fit, or if the QP has no commands.
    #[must_use]
    pub fn place(&self, wanted: u32, length: u64) -> Option<u64> {
        let at = match self.form {
            TagForm::None => return None,
            TagForm::General => u64::from(wanted),
            TagForm::Iscsi if wanted == 0 => u64::from(self.offset) + BHS_TAG,
            TagForm::Iscsi => return None,
        };
        (at + TAG_LEN <= length).then_some(at)
    }

    /// Returns the tag of a message of `length` bytes, if it is a response. `read` copies bytes out
    /// of the message.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn response<E>(
        &self,
        length: u64,
        read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<u32>, E> {
        let offset = u64::from(self.offset);
        let at = if self.form == TagForm::Iscsi { offset + BHS_TAG } else { offset };
        if !self.any() || at + TAG_LEN > length {
            return Ok(None);
        }
        if self.form == TagForm::Iscsi {
            let mut head = [0; 2];
            read(offset, &mut head)?;
            let ends = match head[0] & BHS_OPCODE_MASK {
                SCSI_RESPONSE => true,
                SCSI_DATA_IN => head[1] & DATA_IN_STATUS != 0,
                _ => false,
            };
            if !ends {
                return Ok(None);
            }
        }
        let mut tag = [0; TAG_LEN as usize];
        read(at, &mut tag)?;
        Ok(Some(u32::from_be_bytes(tag)).filter(|tag| *tag != NO_TAG))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(tags: Tags, message: &[u8]) -> Option<u32> {
        let read = |at: u64, into: &mut [u8]| {
            let at = at as usize;
            into.copy_from_slice(&message[at..at + into.len()]);
            Ok::<_, ()>(())
        };
        tags.response(message.len() as u64, read).expect("read")
    }

    #[test]
    fn places_of_commands() {
        assert_eq!(Tags::new(TagForm::None, 0).place(0, 100), None);
        let general = Tags::new(TagForm::General, 8);
        assert_eq!((general.place(5, 9), general.place(5, 8)), (Some(5), None));
        let iscsi = Tags::new(TagForm::Iscsi, 28);
        assert_eq!((iscsi.place(0, 48), iscsi.place(0, 47)), (Some(44), None));
        assert_eq!(iscsi.place(1, 100), None);
    }

    #[test]
    fn responses() {
        let general = Tags::new(TagForm::General, 2);
        assert_eq!(response(general, &[0, 0, 1, 2, 3, 4]), Some(0x0102_0304));
        assert_eq!(response(general, &[0, 0, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(response(general, &[0, 0, 1, 2, 3]), None);
        let iscsi = Tags::new(TagForm::Iscsi, 4);
        let mut message = [0; 4 + 48];
        message[4 + 16..4 + 20].copy_from_slice(&[9, 8, 7, 6]);
        for (opcode, flags, ends) in [
            (0x21, 0, true),
            (0x61, 0, true),
            (0x25, 0, false),
            (0x25, 0x81, true),
            (0x31, 1, false),
        ] {
            (message[4], message[5]) = (opcode, flags);
            assert_eq!(response(iscsi, &message), ends.then_some(0x0908_0706), "{opcode:#x}");
        }
    }
}
