//! A request, copied once and checked against the attributes of its method
//! (`ib_uverbs_cmd_verbs` and `uverbs_process_attr` in drivers/infiniband/core/uverbs_ioctl.c).

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::process::Process;
use super::wire::{
    ATTRIBUTE_LEN, Attribute, HEADER_LEN, Header, LENGTH_MAX, MANDATORY, UHW_IN, UHW_OUT,
    VALID_OUTPUT,
};

/// Maximum number of bytes that are written as the bytes of an attribute itself.
const INLINE: u16 = 8;

/// What the bytes of an attribute are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Input of this many bytes.
    In(u16),
    /// Input of at least the first number of bytes. What is behind the second is zero.
    Struct(u16, u16),
    /// Output of at least this many bytes.
    Out(u16),
    /// The handle of an object.
    Handle,
    /// The handle or descriptor of a new object, which is written into the attribute.
    New,
    /// A descriptor.
    Descriptor,
}

/// An attribute that a method has.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The number of the attribute.
    pub id: u16,
    /// The form of the attribute.
    pub form: Form,
    /// True if the method needs it.
    pub needed: bool,
}

/// An attribute of a request.
#[derive(Debug)]
struct Given {
    raw: Attribute,
    /// The place of the attribute in the request.
    place: u64,
    /// The bytes of input.
    input: Vec<u8>,
}

/// A request.
pub struct Request<'a> {
    process: &'a dyn Process,
    addr: u64,
    header: Header,
    raw: Vec<Attribute>,
    given: Vec<Given>,
}

impl<'a> Request<'a> {
    /// Copies a request at an address of a process.
    ///
    /// # Errors
    /// The kernel's: `EFAULT`, `EINVAL` or `EPROTONOSUPPORT`.
    pub fn copy(process: &'a dyn Process, addr: u64) -> Result<Self, Errno> {
        let mut header = Header::default();
        process.read(addr, header.as_mut_bytes())?;
        let count = u64::from(header.attributes);
        let length = HEADER_LEN + count * ATTRIBUTE_LEN;
        if header.length > LENGTH_MAX || u64::from(header.length) != length {
            return Err(Errno::INVAL);
        }
        if header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(Errno::PROTONOSUPPORT);
        }
        if header.driver != vrnic_abi::RDMA_DRIVER_ID && header.driver != 0 {
            return Err(Errno::INVAL);
        }
        let mut raw = vec![Attribute::default(); usize::from(header.attributes)];
        process.read(addr.wrapping_add(HEADER_LEN), raw.as_mut_slice().as_mut_bytes())?;
        Ok(Self { process, addr, header, raw, given: Vec::new() })
    }

    /// Returns the object and the method.
    #[must_use]
    pub fn method(&self) -> (u16, u16) {
        (self.header.object, self.header.method)
    }

    /// Returns the process.
    #[must_use]
    pub fn process(&self) -> &'a dyn Process {
        self.process
    }

    /// Checks the attributes, and copies those that are input.
    ///
    /// # Errors
    /// The kernel's.
    pub fn check(&mut self, known: &[Known]) -> Result<(), Errno> {
        for (place, raw) in std::mem::take(&mut self.raw).into_iter().enumerate() {
            let uhw = match raw.id {
                UHW_IN => Some(Form::Struct(0, u16::MAX)),
                UHW_OUT => Some(Form::Out(0)),
                _ => None,
            };
            let known = known.iter().find(|known| known.id == raw.id).map(|known| known.form);
            let Some(form) = known.or(uhw) else {
                if raw.flags & MANDATORY != 0 {
                    return Err(Errno::PROTONOSUPPORT);
                }
                continue;
            };
            if raw.reserved != 0 || self.given(raw.id).is_some() {
                return Err(Errno::INVAL);
            }
            let input = self.input(&raw, form)?;
            self.given.push(Given { raw, place: place as u64, input });
        }
        let missing = known.iter().any(|known| known.needed && self.given(known.id).is_none());
        if missing { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Checks the length of an attribute, and copies its bytes if they are input.
    fn input(&self, raw: &Attribute, form: Form) -> Result<Vec<u8>, Errno> {
        match form {
            Form::In(len) if raw.len == len => self.copy_in(raw),
            Form::Struct(least, _) if raw.len < least => Err(Errno::INVAL),
            Form::Struct(_, most) => {
                let mut bytes = self.copy_in(raw)?;
                let beyond = bytes.iter().skip(most.into()).any(|byte| *byte != 0);
                bytes.truncate(most.into());
                if beyond { Err(Errno::OPNOTSUPP) } else { Ok(bytes) }
            }
            Form::Out(least) if raw.len >= least => Ok(Vec::new()),
            Form::Handle | Form::New | Form::Descriptor if raw.len == 0 => Ok(Vec::new()),
            _ => Err(Errno::INVAL),
        }
    }

    fn copy_in(&self, raw: &Attribute) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; raw.len.into()];
        if raw.len <= INLINE {
            bytes.iter_mut().zip(raw.data.to_le_bytes()).for_each(|(to, from)| *to = from);
        } else {
            self.process.read(raw.data, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn given(&self, id: u16) -> Option<&Given> {
        self.given.iter().find(|given| given.raw.id == id)
    }

    /// Returns whether the request has an attribute.
    #[must_use]
    pub fn has(&self, id: u16) -> bool {
        self.given(id).is_some()
    }

    /// Returns the bytes of an attribute of input; none if it is not there.
    #[must_use]
    pub fn bytes(&self, id: u16) -> &[u8] {
        self.given(id).map_or(&[], |given| &given.input)
    }

    /// Returns an attribute of input. What is missing at its end is zero.
    #[must_use]
    pub fn value<T: FromBytes + IntoBytes>(&self, id: u16) -> T {
        let mut value = T::new_zeroed();
        value.as_mut_bytes().iter_mut().zip(self.bytes(id)).for_each(|(to, from)| *to = *from);
        value
    }

    /// Returns the handle in an attribute, or `None` if it is not there.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn handle(&self, id: u16) -> Result<Option<u32>, Errno> {
        let data = self.given(id).map(|given| given.raw.data);
        data.map(|data| u32::try_from(data).map_err(|_| Errno::INVAL)).transpose()
    }

    /// Returns the file of the descriptor in an attribute, or `None` if it is not there.
    ///
    /// # Errors
    /// `EINVAL` if it is no descriptor, `EBADF` if there is no such file.
    pub fn file(&self, id: u16) -> Result<Option<crate::trap::task::FileId>, Errno> {
        let Some(given) = self.given(id) else { return Ok(None) };
        // CAST: descriptors are signed in this format.
        let descriptor = i32::try_from(given.raw.data as i64).map_err(|_| Errno::INVAL)?;
        self.process.file(descriptor).map(Some)
    }

    /// Returns the room in bytes for an attribute of output.
    #[must_use]
    pub fn room(&self, id: u16) -> u16 {
        self.given(id).map_or(0, |given| given.raw.len)
    }

    /// Writes as many bytes of an answer as there is room for.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn respond(
        &self,
        id: u16,
        answer: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<(), Errno> {
        let Some(given) = self.given(id) else { return Ok(()) };
        let bytes = answer.as_bytes();
        let written = bytes.get(..usize::from(given.raw.len)).unwrap_or(bytes);
        self.process.write(given.raw.data, written)?;
        self.mark(given)
    }

    /// Writes an answer as [`Self::respond`] does, and zeroes the rest of the room.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn respond_or_zero(
        &self,
        id: u16,
        answer: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<(), Errno> {
        let mut bytes = answer.as_bytes().to_vec();
        bytes.resize(bytes.len().max(self.room(id).into()), 0);
        self.respond(id, bytes.as_slice())
    }

    /// Writes the handle or the descriptor of a new object.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn respond_handle(&self, id: u16, handle: u64) -> Result<(), Errno> {
        let Some(given) = self.given(id) else { return Ok(()) };
        let data = self.attribute(given) + std::mem::offset_of!(Attribute, data) as u64;
        self.process.write(data, &handle.to_le_bytes())?;
        self.mark(given)
    }

    /// Records in the request that an attribute has been written.
    fn mark(&self, given: &Given) -> Result<(), Errno> {
        let flags = self.attribute(given) + std::mem::offset_of!(Attribute, flags) as u64;
        self.process.write(flags, &(given.raw.flags | VALID_OUTPUT).to_le_bytes())
    }

    fn attribute(&self, given: &Given) -> u64 {
        self.addr.wrapping_add(HEADER_LEN + given.place * ATTRIBUTE_LEN)
    }
}
