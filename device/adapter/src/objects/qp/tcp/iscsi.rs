//! The state of a QP in the iSCSI mode: PDUs that leave, and the PDU that arrives.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use vrnic_abi::Key;
use vrnic_abi::connection::{ConnectionStatus, PRIVATE_MAX};
use vrnic_abi::iscsi::IscsiCounters;
use vrnic_iscsi::digest::{DIGEST_LEN, Digest, padding};
use vrnic_iscsi::{Config, Deframer, Device, Malformed, Solicited};
use vrnic_tcp::{Share, StreamPos};
use zerocopy::IntoBytes;

use crate::memory::tpt::Denied;

/// Maximum number of R2Ts that are not answered completely. Further ones go to the consumer.
const SOLICITED_MAX: usize = 256;
/// Maximum number of Data-Out PDUs that the target has not acknowledged.
const DATA_OUT_MAX: usize = 256;
/// Number of bytes that the target has not acknowledged above which no Data-Out is added.
const QUEUE_MAX: u64 = 1 << 20;
/// Maximum number of bytes of additional header segments that a consumer sends.
pub const ADDITIONAL_MAX: usize = 272;

/// The negotiated properties of the session, and the device at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The negotiated properties.
    pub config: Config,
    /// The kind of the device.
    pub device: Device,
}

/// The data of a PDU that leaves. It is read from the guest's memory whenever TCP sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Bytes of an outstanding work request, which begin after its header.
    Request {
        /// The index of the work request.
        index: u32,
        /// The number of bytes of its header.
        skip: u64,
    },
    /// Data of a command from an offset on.
    Command {
        /// The key of the command.
        key: Key,
        /// The offset in the command's buffer.
        offset: u64,
    },
    /// Zeros, because a response has ended the command.
    Zeros,
}

/// A PDU that the target has not acknowledged completely.
#[derive(Debug)]
pub struct Pdu {
    start: StreamPos,
    /// The header of the PDU, with the digest.
    pub head: Box<[u8]>,
    /// The place of the PDU's data.
    pub data: Data,
    /// The number of bytes of its data.
    pub length: u32,
    /// Padding and digest after the data.
    pub tail: ArrayVec<u8, { 3 + DIGEST_LEN }>,
}

impl Pdu {
    /// Returns a PDU with this header.
    #[must_use]
    pub fn new(config: &Config, header: &[u8], data: Data, length: u32) -> Self {
        let digest = config.header_digest.then(|| Digest::of(header));
        let head = [header, digest.as_ref().map_or(&[][..], |octets| octets)].concat();
        let tail = std::iter::repeat_n(0, padding(length)).collect();
        Self { start: StreamPos(0), head: head.into(), data, length, tail }
    }

    /// Adds the digest of the data, of which `digest` has all bytes.
    pub fn seal(&mut self, mut digest: Digest) {
        digest.add(&self.tail);
        let _has_room = self.tail.try_extend_from_slice(&digest.octets());
    }

    /// Replaces its data by zeros, and its digest, too, if none of its bytes are before `sent`.
    fn blank(&mut self, sent: StreamPos) {
        self.data = Data::Zeros;
        let padding = padding(self.length);
        if self.tail.len() > padding && self.start >= sent {
            self.tail.truncate(padding);
            self.seal(Digest::of_zeros(self.length));
        }
    }

    /// Returns whether it has data of this command, and bytes from `una` on.
    fn uses(&self, of: Key, una: StreamPos) -> bool {
        let own = matches!(self.data, Data::Command { key, .. } if key == of);
        own && self.start.plus(self.bytes()) > una
    }

    const fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.length as u64 + self.tail.len() as u64
    }
}

/// The place of a byte of the stream.
#[derive(Debug)]
pub struct Place<'a> {
    /// The PDU that has the place.
    pub pdu: &'a Pdu,
    /// The number of its bytes before this one.
    pub offset: u64,
}

/// The PDUs that leave.
#[derive(Debug, Default)]
pub struct Outgoing {
    pdus: VecDeque<Pdu>,
    end: StreamPos,
    /// Number of Data-Out PDUs among them.
    data_outs: usize,
}

impl Outgoing {
    /// Appends a PDU.
    pub fn push(&mut self, pdu: Pdu) {
        self.data_outs += usize::from(!matches!(pdu.data, Data::Request { .. }));
        let start = self.end;
        self.end = start.plus(pdu.bytes());
        self.pdus.push_back(Pdu { start, ..pdu });
    }

    /// Returns the position after the bytes of all PDUs.
    #[must_use]
    pub const fn end(&self) -> StreamPos {
        self.end
    }

    /// Returns the place of a byte that the target has not acknowledged.
    #[must_use]
    pub fn place(&self, at: StreamPos) -> Option<Place<'_>> {
        let nth = self.pdus.partition_point(|pdu| pdu.start.plus(pdu.bytes()) <= at);
        let pdu = self.pdus.get(nth).filter(|pdu| pdu.start <= at)?;
        Some(Place { pdu, offset: at.since(pdu.start) })
    }

    /// Removes the PDUs whose bytes are all before `una`. Calls `complete` with the indices of the
    /// work requests among them.
    pub fn drop_acknowledged(&mut self, una: StreamPos, mut complete: impl FnMut(u32)) {
        while let Some(pdu) = self.pdus.pop_front_if(|pdu| pdu.start.plus(pdu.bytes()) <= una) {
            match pdu.data {
                Data::Request { index, .. } => complete(index),
                Data::Command { .. } | Data::Zeros => self.data_outs -= 1,
            }
        }
    }

    /// Returns whether a Data-Out of a command has bytes from `una` on.
    #[must_use]
    pub fn uses(&self, key: Key, una: StreamPos) -> bool {
        self.pdus.iter().any(|pdu| pdu.uses(key, una))
    }

    /// Replaces the data of the Data-Out PDUs of a command that have bytes from `una` on by zeros.
    /// Those that have not begun to leave, from `sent` on, get the digest of zeros. Returns their
    /// number.
    fn blank(&mut self, key: Key, una: StreamPos, sent: StreamPos) -> u64 {
        let own = self.pdus.iter_mut().filter(|pdu| pdu.uses(key, una));
        own.map(|pdu| pdu.blank(sent)).count() as u64
    }

    /// Returns whether another Data-Out may be added, if the target has acknowledged all bytes
    /// before `una`.
    #[must_use]
    pub fn has_room(&self, una: StreamPos) -> bool {
        self.data_outs < DATA_OUT_MAX && self.end.since(una) < QUEUE_MAX
    }
}

/// The destination of the data of the PDU in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The data is dropped.
    #[default]
    Nowhere,
    /// The data goes to the receive, after the header.
    Receive,
    /// The data goes to the buffer of the command, from an offset on.
    Buffer(u64),
}

/// The PDU that arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arriving {
    /// True if its header is complete, and no receive has been there for it.
    pub waits: bool,
    /// True if it completes no receive.
    pub is_dropped: bool,
    /// True if its receive has no room for all of its data.
    pub is_cut: bool,
    /// The destination of its data.
    pub target: Target,
    /// The command that it was executed for, and the name that the consumer has for this.
    pub executed: Option<(Key, u32)>,
    /// True if it ends this command.
    pub ends: bool,
    /// The check that has failed.
    pub denied: Option<Denied>,
}

/// The iSCSI mode of a connection.
#[derive(Debug)]
pub struct Session {
    /// The negotiated properties and the device.
    pub terms: Terms,
    /// The part that finds PDUs in the stream.
    pub deframer: Deframer,
    /// The PDU in progress.
    pub arriving: Arriving,
    /// The PDUs that leave.
    pub outgoing: Outgoing,
    /// The position of the first byte that the target has not acknowledged.
    pub una: StreamPos,
    /// The position after the last byte that was sent.
    pub sent: StreamPos,
    /// R2Ts that are not answered completely.
    solicited: VecDeque<Solicited>,
    /// The counters of the connection's PDUs.
    pub counters: IscsiCounters,
    /// True if the local direction is closed.
    is_closed: bool,
    share: Share,
}

impl Session {
    /// The memory that it takes at most, besides that of its work requests.
    pub const MAX_BYTES: usize = DATA_OUT_MAX * (size_of::<Pdu>() + 64)
        + SOLICITED_MAX * size_of::<Solicited>()
        + crate::objects::qp::outstanding::OUTSTANDING as usize
            * (size_of::<Pdu>() + 64 + ADDITIONAL_MAX);

    /// Creates the mode of a connection at its beginning. `share` has [`Self::MAX_BYTES`].
    #[must_use]
    pub fn new(terms: Terms, share: Share) -> Self {
        Self {
            terms,
            deframer: Deframer::new(terms.config),
            arriving: Arriving::default(),
            outgoing: Outgoing::default(),
            una: StreamPos(0),
            sent: StreamPos(0),
            solicited: VecDeque::new(),
            counters: IscsiCounters::default(),
            is_closed: false,
            share,
        }
    }

    /// Returns the number of bytes that are counted in the memory for connections.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.share.used()
    }

    /// Lets an R2T be answered.
    ///
    /// # Errors
    /// [`Denied::Full`] if too many are not answered yet, or if the local direction is closed.
    pub fn solicit(&mut self, solicited: Solicited) -> Result<(), Denied> {
        if self.is_closed || self.solicited.len() >= SOLICITED_MAX {
            return Err(Denied::Full);
        }
        self.solicited.push_back(solicited);
        Ok(())
    }

    /// Closes the local direction, so that nothing is added to what leaves. Returns false if R2Ts
    /// must be answered before.
    pub fn close(&mut self) -> bool {
        self.is_closed |= self.solicited.is_empty();
        self.is_closed
    }

    /// Returns whether the local direction is closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns whether an R2T can be answered now, if the target has acknowledged all bytes before
    /// `una`.
    #[must_use]
    pub fn may_answer(&self, una: StreamPos) -> bool {
        !self.solicited.is_empty() && self.outgoing.has_room(una)
    }

    /// Returns the R2T that is answered next.
    pub fn next_solicited(&mut self) -> Option<&mut Solicited> {
        self.solicited.front_mut()
    }

    /// Removes the R2T that is answered next.
    pub fn solicited_is_over(&mut self) {
        self.solicited.pop_front();
    }

    /// Stops using the data of a command: the bytes of it that are not acknowledged become zeros.
    pub fn forget(&mut self, key: Key) {
        self.solicited.retain(|solicited| solicited.task_tag() != key.get());
        let zeroed = self.outgoing.blank(key, self.una, self.sent);
        count(&mut self.counters.zeroed, zeroed);
    }

    /// Counts the reason for which the stream has ended.
    pub fn fail(&mut self, malformed: Malformed) {
        count(
            match malformed {
                Malformed::HeaderDigest => &mut self.counters.header_digest_errors,
                Malformed::DataDigest => &mut self.counters.data_digest_errors,
                Malformed::TooLong | Malformed::Additional => &mut self.counters.too_long,
            },
            1,
        );
    }

    /// Returns the state of a connection with the counters.
    #[must_use]
    pub fn describe(&self, mut status: ConnectionStatus) -> ConnectionStatus {
        let bytes = self.counters.as_bytes();
        let len = bytes.len().min(PRIVATE_MAX);
        status.private.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        // CAST: at most 512.
        status.private_len = (len as u16).into();
        status
    }
}

/// Adds to a counter.
pub fn count(counter: &mut zerocopy::little_endian::U64, value: u64) {
    *counter = counter.get().wrapping_add(value).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If no byte of the PDU has left, the digest is computed over the zeros.
    #[test]
    fn a_data_out_without_its_command_has_the_digest_of_zeros() {
        let config = Config {
            header_digest: true,
            data_digest: true,
            max_receive: 8192,
            max_send: 8192,
            max_burst: 1 << 16,
        };
        let (key, mut outgoing) = (Key::new(0x1234), Outgoing::default());
        for length in [7, 5000] {
            let mut pdu = Pdu::new(&config, &[5; 48], Data::Command { key, offset: 0 }, length);
            let mut digest = Digest::default();
            digest.add(&vec![0xee; length as usize]);
            pdu.seal(digest);
            outgoing.push(pdu);
        }
        let first = outgoing.pdus.front().expect("a PDU").tail.clone();
        let begun = StreamPos(10);
        assert_eq!(outgoing.blank(key, StreamPos(0), begun), 2);
        let tails: Vec<_> = outgoing.pdus.iter().map(|pdu| pdu.tail.to_vec()).collect();
        let padded = vec![0; 5000];
        assert_eq!(tails, [first.to_vec(), Digest::of(&padded).to_vec()]);
        assert!(outgoing.pdus.iter().all(|pdu| pdu.data == Data::Zeros));
    }
}
