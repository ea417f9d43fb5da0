//! The initiator, the target, and their PDUs.

use vrnic_abi::admin::{QpFlags, command};
use vrnic_abi::connection::Connection;
use vrnic_abi::cq::{Cqe, Flags, Status};
use vrnic_abi::iscsi::{Device, IscsiCounters, IscsiFlags, SetIscsi};
use vrnic_abi::qp::{Access, Type};
use vrnic_abi::sq::{CommandFlags, Opcode, Sge};
use vrnic_simlink::Faults;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream::{self, MSS, bare_connection};
use vrnic_testdriver::wr::Wr;
use zerocopy::FromBytes;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::memory::commands::command;
use crate::network::toe::{self, pass, wait};

pub(super) const READ: u32 = Access::REMOTE_READ.bits();
pub(super) const WRITE: u32 = Access::REMOTE_WRITE.bits();
pub(super) const BHS: usize = 48;
/// The initiator's receives, and their length.
pub(super) const INBOX: u64 = 4 << 20;
pub(super) const RECEIVE: u32 = 16 << 10;
/// The target's memory for PDUs that it sends, and for bytes that it receives.
const OUT: u64 = 0;
const IN: u64 = 4 << 20;
const IN_LEN: u32 = 32 << 10;
/// The longest data of a PDU to the initiator, and of one to the target.
pub(super) const MAX_RECEIVE: u32 = 8192;
pub(super) const MAX_SEND: u32 = 4096;
pub(super) const MAX_BURST: u32 = 64 << 10;

/// The parameters of the mode in these tests.
pub(super) fn parameters(qpn: u32, digests: bool) -> SetIscsi {
    let flags = if digests { IscsiFlags::all() } else { IscsiFlags::empty() };
    SetIscsi {
        qpn: qpn.into(),
        max_receive: MAX_RECEIVE.into(),
        max_send: MAX_SEND.into(),
        max_burst: MAX_BURST.into(),
        flags: flags.bits(),
        device: Device::Disk as u8,
        reserved: [0; 2],
    }
}

/// A PDU, without padding and digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pdu {
    pub(super) head: [u8; BHS],
    pub(super) data: Vec<u8>,
}

impl Pdu {
    /// Returns a PDU with this opcode, these flags and this initiator task tag.
    pub(super) fn new(opcode: u8, flags: u8, tag: u32) -> Self {
        let mut head = [0; BHS];
        (head[0], head[1]) = (opcode, flags);
        head[16..20].copy_from_slice(&tag.to_be_bytes());
        Self { head, data: Vec::new() }
    }

    pub(super) fn word(mut self, at: usize, value: u32) -> Self {
        self.head[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn data(mut self, data: &[u8]) -> Self {
        self.head[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        self.data = data.to_vec();
        self
    }

    pub(super) fn get(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.head[at..at + 4].try_into().expect("a word"))
    }

    pub(super) fn tag(&self) -> u32 {
        self.get(16)
    }

    /// Returns the bytes on the wire.
    pub(super) fn bytes(&self, digests: bool) -> Vec<u8> {
        let mut bytes = self.head.to_vec();
        if digests {
            bytes.extend(crc(&self.head));
        }
        if !self.data.is_empty() {
            let mut data = self.data.clone();
            data.resize(data.len().next_multiple_of(4), 0);
            let digest = crc(&data);
            bytes.extend(data);
            if digests {
                bytes.extend(digest);
            }
        }
        bytes
    }

    /// Takes a PDU off the bytes that the target has received, and checks its digests.
    fn take(bytes: &mut Vec<u8>, digests: bool) -> Option<Self> {
        let head: [u8; BHS] = bytes.get(..BHS)?.try_into().ok()?;
        assert_eq!(head[4], 0, "no additional header segments");
        let len = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let digest = if digests { 4 } else { 0 };
        let start = BHS + digest;
        let padded = len.next_multiple_of(4);
        let end = start + padded + if len > 0 { digest } else { 0 };
        if bytes.len() < end {
            return None;
        }
        let all: Vec<u8> = bytes.drain(..end).collect();
        if digests {
            assert_eq!(all[BHS..start], crc(&head), "the digest of the header");
            if len > 0 {
                let data = &all[start..start + padded];
                assert_eq!(all[start + padded..], crc(data), "the digest of the data");
            }
        }
        Some(Self { head, data: all[start..start + len].to_vec() })
    }
}

/// A slow CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    (!crc).to_le_bytes()
}

/// Returns a SCSI Command with this operation and this number of bytes of data.
pub(super) fn scsi(flags: u8, operation: u8, len: u32) -> Pdu {
    let mut pdu = Pdu::new(1, flags, 0).word(20, len);
    pdu.head[32] = operation;
    pdu
}

/// Returns a READ (10), and a WRITE (10).
pub(super) fn read10(len: u32) -> Pdu {
    scsi(0xc0, 0x28, len)
}

pub(super) fn write10(len: u32) -> Pdu {
    scsi(0xa0, 0x2a, len)
}

/// Returns an R2T.
pub(super) fn r2t(tag: u32, offset: u32, len: u32) -> Pdu {
    Pdu::new(0x31, 0x80, tag).word(20, 0x77).word(24, 9).word(40, offset).word(44, len)
}

/// Returns a Data-In.
pub(super) fn data_in(tag: u32, offset: u32, data: &[u8]) -> Pdu {
    Pdu::new(0x25, 0, tag).word(20, u32::MAX).word(40, offset).data(data)
}

/// Returns a SCSI Response.
pub(super) fn response(tag: u32) -> Pdu {
    Pdu::new(0x21, 0x80, tag)
}

/// An initiator and a target with a connection after login.
pub(super) struct Rig {
    pub(super) cable: Cable,
    pub(super) a: Endpoint,
    pub(super) b: Endpoint,
    pub(super) digests: bool,
    /// Bytes that the target has received.
    stream: Vec<u8>,
    places: std::collections::VecDeque<u64>,
    next: u64,
    out: u64,
}

impl Rig {
    pub(super) fn new(seed: u64, faults: Faults, digests: bool) -> Self {
        Self::with_early(seed, faults, digests, &[])
    }

    /// Returns a rig whose initiator's kernel has received these bytes before.
    pub(super) fn with_early(seed: u64, faults: Faults, digests: bool, early: &[u8]) -> Self {
        let setup = Setup { kernel: true, kind: Type::Toe, log_wqes: 5, ..Setup::default() };
        Self::with_setup(seed, faults, digests, early, setup)
    }

    /// Returns a rig whose initiator's QP is reactive.
    pub(super) fn reactive(seed: u64) -> Self {
        let (kind, flags) = (Type::Toe, QpFlags::REACTIVE);
        let setup = Setup { kernel: true, kind, flags, log_wqes: 5, ..Setup::default() };
        Self::with_setup(seed, Faults::default(), true, &[], setup)
    }

    fn with_setup(seed: u64, faults: Faults, digests: bool, early: &[u8], setup: Setup) -> Self {
        let cable = toe::cable(seed, faults);
        let a = Endpoint::new(&cable.ga, setup);
        let b = Endpoint::new(&cable.gb, toe::setup(true));
        let mut rig = Self {
            cable,
            a,
            b,
            digests,
            stream: Vec::new(),
            places: std::collections::VecDeque::new(),
            next: 0,
            out: 0,
        };
        rig.initialize();
        rig.set_mode(&parameters(rig.a.qpn, digests)).expect("SET_ISCSI");
        stream::open_toe(&rig.b, 1, rig.cable.ga.mac(), &[]).expect("OPEN_CONNECTION");
        rig.open(early).expect("OPEN_CONNECTION");
        (0..16).for_each(|_| rig.listen());
        rig
    }

    /// Moves the initiator's QP to INIT.
    fn initialize(&self) {
        self.a.guest.take_through(self.a.qpn, attributes(self.cable.gb.mac(), 0), &TO_RTS[..1]);
    }

    pub(super) fn set_mode(&self, parameters: &SetIscsi) -> Result<(), Refused> {
        self.a.guest.command::<command::SetIscsi>(parameters)
    }

    fn open(&self, early: &[u8]) -> Result<(), Refused> {
        let macs = [self.cable.ga.mac(), self.cable.gb.mac()];
        let connection: Connection = bare_connection(0, macs, MSS);
        self.a.guest.open_toe(self.a.qpn, &connection, early)
    }

    /// Posts a receive of the target.
    fn listen(&mut self) {
        let place = IN + self.next % 64 * u64::from(IN_LEN);
        self.next += 1;
        self.places.push_back(place);
        self.b.post_recv(1, &[self.b.sge(place, IN_LEN)]);
    }

    /// Posts receives of the initiator, numbered from `from` on.
    pub(super) fn receives(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let place = self.inbox(number);
            self.a.post_recv(number, &[self.a.sge(place, RECEIVE)]);
        }
    }

    pub(super) fn inbox(&self, number: u64) -> u64 {
        INBOX + number % 64 * u64::from(RECEIVE)
    }

    /// Posts a command with these data segments.
    pub(super) fn post(&mut self, pdu: &Pdu, data: &[Sge], access: u32) {
        let message = [&pdu.head[..], &pdu.data].concat();
        let wr = command(data, &message, 0, access, CommandFlags::empty());
        self.a.post_send(&wr);
    }

    /// Posts another PDU.
    pub(super) fn send(&mut self, pdu: &Pdu) {
        let message = [&pdu.head[..], &pdu.data].concat();
        self.a.post_send(&Wr::new(Opcode::Send, &[]).inline(&message));
    }

    /// Sends bytes from the target.
    pub(super) fn say_bytes(&mut self, bytes: &[u8]) {
        if self.out + bytes.len() as u64 > IN {
            self.out = OUT;
        }
        self.b.fill(self.out, bytes);
        let wr = Wr::new(Opcode::Send, &[self.b.sge(self.out, bytes.len() as u32)]);
        self.b.post_send(&wr);
        self.out += bytes.len() as u64;
    }

    /// Sends a PDU from the target.
    pub(super) fn say(&mut self, pdu: &Pdu) {
        self.say_bytes(&pdu.bytes(self.digests));
    }

    /// Returns the next PDU that the target receives.
    #[track_caller]
    pub(super) fn heard(&mut self) -> Pdu {
        loop {
            if let Some(pdu) = Pdu::take(&mut self.stream, self.digests) {
                return pdu;
            }
            let cqe = wait(&self.cable, &mut self.b, |b| b.recv_cq.poll());
            assert_eq!(status(&cqe), Status::Success);
            let place = self.places.pop_front().expect("it was posted");
            self.stream.extend(self.b.bytes(place, cqe.byte_len.get() as usize));
            self.listen();
        }
    }

    /// Returns whether the target has received nothing else by now.
    pub(super) fn is_quiet(&mut self) -> bool {
        pass(&self.cable, 50_000_000);
        self.stream.is_empty() && self.b.recv_cq.poll().is_none()
    }

    /// Returns the next completion of a receive of the initiator.
    #[track_caller]
    pub(super) fn received(&mut self) -> Cqe {
        let cqe = wait(&self.cable, &mut self.a, |a| a.recv_cq.poll());
        assert_eq!(status(&cqe), Status::Success);
        cqe
    }

    /// Waits for the completion of the initiator's next send. Returns it.
    #[track_caller]
    pub(super) fn sent(&mut self) -> Cqe {
        wait(&self.cable, &mut self.a, |a| a.send_cq.poll())
    }

    /// Checks the next completion of a receive of the initiator: the PDU, as it was received, and
    /// the command.
    #[track_caller]
    pub(super) fn expect(&mut self, pdu: &Pdu, whole: bool, what: Told) {
        let cqe = self.received();
        let bytes = [&pdu.head[..], if whole { &pdu.data } else { &[] }].concat();
        assert_eq!(cqe.byte_len.get() as usize, bytes.len());
        assert!(self.a.bytes(self.inbox(cqe.wr_id.get()), bytes.len()) == bytes);
        assert_eq!(Told::of(&cqe), what);
    }

    pub(super) fn counters(&self) -> IscsiCounters {
        let status = self.a.guest.query_connection(self.a.qpn).expect("QUERY_CONNECTION");
        assert_eq!(usize::from(status.private_len.get()), size_of::<IscsiCounters>());
        IscsiCounters::read_from_prefix(&status.private).expect("long enough").0
    }
}

/// What the completion of a receive says about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing: the PDU belongs to the consumer.
    Nothing,
    /// The PDU was executed for the command with this Command ID and this key.
    Executed(u32, u32),
    /// The PDU has ended this command.
    Ended(u32, u32),
    /// The PDU has failed this check.
    Failed(u32),
    /// The PDU has failed this check, and has ended this command.
    FailedEnd(u32, u32, u32),
}

impl Told {
    fn of(cqe: &Cqe) -> Self {
        let flags = Flags::from_bits_truncate(cqe.flags.get());
        let (id, key) = (u32::from_le_bytes(cqe.imm), cqe.key.get());
        let ended = flags == Flags::COMMAND | Flags::INVALIDATED;
        match (ended, flags.contains(Flags::COMMAND), cqe.vendor_err.get()) {
            (true, _, 0) => Self::Ended(id, key),
            (true, _, why) => Self::FailedEnd(id, key, why),
            (false, true, 0) => Self::Executed(id, key),
            (false, false, 0) => Self::Nothing,
            (_, _, why) => Self::Failed(why),
        }
    }
}
