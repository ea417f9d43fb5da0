//! Queue pair 1, by which the communication managers of adapters exchange messages: datagrams of
//! 256 bytes (IBTA volume 1, 13.5.1). In a guest the kernel has it.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use vrnic_abi::admin::{Command, CreateCq, CreateQp, RegMr, command};
use vrnic_abi::cq::{CQE_LEN, Cqe, Flags as CqeFlags, STAMP_OFFSET, Status};
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::qp::{Access, AddressVector, Attr, AttrMask, GRH_LEN, GSI_QPN, State, Type};
use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{DATAGRAM_LEN, DatagramSeg, Flags, HEADER_LEN, Opcode, Sge, SqWqe};
use vrnic_abi::{Cqn, Eqn, Qpn, UarIndex};
use vrnic_adapter::host::DoorbellBar;
use vrnic_cm::mad::{MAD_LEN, Mad};
use vrnic_cm::parameters::Gid;
use zerocopy::IntoBytes;

use super::host::ProcessHost;
use super::ring::{Ring, driver_addr};
use crate::memory::words;
use crate::trap::tree::ipv4_gid;

/// The key of all queue pairs 1.
const QKEY: u32 = 0x8001_0000;
/// log2 of the entries of the send queue, and of the receive queue.
const SENDS_LOG: u8 = 8;
const RECEIVES_LOG: u8 = 9;
/// log2 of the bytes of an entry.
const SEND_STRIDE_LOG: u8 = 9;
const RECEIVE_STRIDE_LOG: u8 = 5;
/// Number of bytes of a receive: a network header and a message.
const RECEIVE_LEN: u32 = GRH_LEN + MAD_LEN as u32;
/// Distance of the buffers of receives.
const BUFFER_LEN: u64 = 512;
/// The places in the driver's memory, from the place of the queue pair on.
const SEND_CQ: u64 = 0;
const RECEIVE_CQ: u64 = SEND_CQ + ((CQE_LEN as u64) << SENDS_LOG);
const SENDS: u64 = RECEIVE_CQ + ((CQE_LEN as u64) << RECEIVES_LOG);
const RECEIVES: u64 = SENDS + (1 << (SENDS_LOG + SEND_STRIDE_LOG));
const BUFFERS: u64 = RECEIVES + (1 << (RECEIVES_LOG + RECEIVE_STRIDE_LOG));
/// Number of bytes of the driver's memory that it needs.
pub const LEN: u64 = BUFFERS + (BUFFER_LEN << RECEIVES_LOG);
/// Number of completion queues that it needs.
pub const CQS: u32 = 2;
/// Number of protection domains that it needs.
pub const PDS: u32 = 1;
/// Number of regions that it needs.
pub const MRS: u32 = 1;

const _: () = assert!((HEADER_LEN + DATAGRAM_LEN) as usize + MAD_LEN <= 1 << SEND_STRIDE_LOG);
const _: () = assert!(RECEIVE_LEN as u64 <= BUFFER_LEN);

/// A driver that executes commands for its queue pair 1.
pub(super) trait Commands {
    /// Returns the host of the adapter.
    fn host(&self) -> &ProcessHost;

    /// Returns the event queue to which completion queues are bound.
    fn eqn(&self) -> Eqn;

    /// Executes a command.
    fn command<C: Command>(&self, params: &C::Params) -> Result<C::Reply, Errno>;

    /// Sets attributes of a queue pair.
    fn modify_qp(&self, qpn: Qpn, mask: AttrMask, attr: &Attr) -> Result<(), Errno>;
}

/// A message that has arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// The GID of the sender.
    pub source: Gid,
    /// The GID of this side.
    pub dest: Gid,
    /// The MAC of the sender.
    pub mac: [u8; 6],
    /// The message.
    pub mad: Mad,
}

/// A completion queue.
#[derive(Debug, Default)]
struct Completions {
    ring: Ring,
    doorbell: Doorbell,
    /// The index of the next entry. One thread takes entries, and another one may look whether
    /// there is one.
    next: AtomicU32,
}

/// Numbers of entries, modulo 2^32.
#[derive(Debug, Default)]
struct Counts {
    /// Sends that were posted.
    posted: u32,
    /// Sends that have completed.
    done: u32,
    /// Receives that were posted.
    receives: u32,
}

/// The queue pair.
#[derive(Debug, Default)]
pub struct Gsi {
    base: u64,
    sends: Completions,
    receives: Completions,
    doorbell: Doorbell,
    send_cqn: Cqn,
    counts: Mutex<Counts>,
}

impl Completions {
    /// Creates a completion queue of `1 << log` entries. Returns the number, too.
    fn create(driver: &impl Commands, addr: u64, log: u8) -> Result<(Self, Cqn), Errno> {
        let ring = Ring { addr, log };
        let params = CreateCq::new(0, driver.eqn(), log, ring.pages());
        let created = driver.command::<command::CreateCq>(&params)?;
        let doorbell = Doorbell::new(UarIndex::new(0), created.slot);
        Ok((Self { ring, doorbell, next: AtomicU32::new(0) }, created.cqn))
    }

    /// Returns whether there is an entry.
    fn any(&self, host: &ProcessHost) -> bool {
        self.ring.has_arrived(host, self.next.load(Ordering::Relaxed), CQE_LEN, STAMP_OFFSET)
    }

    /// Takes the next entry, if there is one.
    fn take(&self, host: &ProcessHost) -> Option<Cqe> {
        let next = self.next.load(Ordering::Relaxed);
        let entry = self.ring.arrived(host, next, STAMP_OFFSET)?;
        let next = next.wrapping_add(1);
        self.next.store(next, Ordering::Relaxed);
        host.bar_store32(self.doorbell.cq_ci(), next);
        Some(entry)
    }
}

impl Gsi {
    /// Creates the queue pair with its queues at `base` of the driver's memory, and posts receives.
    ///
    /// # Errors
    /// The adapter's refusal.
    pub(super) fn create(driver: &impl Commands, base: u64) -> Result<Self, Errno> {
        let (sends, send_cqn) = Completions::create(driver, base + SEND_CQ, SENDS_LOG)?;
        let (receives, recv_cqn) = Completions::create(driver, base + RECEIVE_CQ, RECEIVES_LOG)?;
        let pdn = driver.command::<command::AllocPd>(&0.into())?;
        let all = RegMr::all_memory(pdn, Access::LOCAL_WRITE.bits());
        let lkey = driver.command::<command::RegMr>(&all)?;
        let pages = Ring { addr: 0, log: 0 }.pages();
        let created = driver.command::<command::CreateQp>(&CreateQp {
            sq_table: driver_addr(base + SENDS),
            rq_table: driver_addr(base + RECEIVES),
            sq_page_shift: pages.page_shift,
            rq_page_shift: pages.page_shift,
            sq_log_size: SENDS_LOG,
            sq_log_stride: SEND_STRIDE_LOG,
            rq_log_size: RECEIVES_LOG,
            rq_log_stride: RECEIVE_STRIDE_LOG,
            pdn,
            send_cqn,
            recv_cqn,
            // CAST: the enum's number.
            qp_type: Type::Gsi as u8,
            ..CreateQp::default()
        })?;
        let host = driver.host();
        for index in 0..1 << RECEIVES_LOG {
            let addr = base + BUFFERS + index * BUFFER_LEN;
            let place = Sge { addr: addr.into(), length: RECEIVE_LEN.into(), lkey };
            let entry = [RqWqe::new(index, 1).as_bytes(), place.as_bytes()].concat();
            let at = base + RECEIVES + (index << RECEIVE_STRIDE_LOG);
            words::write(host.driver(), at, &entry).ok_or(Errno::IO)?;
        }
        let doorbell = Doorbell::new(UarIndex::new(0), created.slot);
        let all = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::QKEY;
        for (state, mask) in [
            (State::Init, all),
            (State::Rtr, AttrMask::STATE),
            (State::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
        ] {
            // CAST: the enum's number.
            let attr = Attr { state: state as u8, qkey: QKEY.into(), ..Attr::default() };
            driver.modify_qp(created.qpn, mask, &attr)?;
        }
        let counts = Counts { receives: 1 << RECEIVES_LOG, ..Counts::default() };
        host.bar_store32(doorbell.rq_pi(), counts.receives);
        Ok(Self { base, sends, receives, doorbell, send_cqn, counts: Mutex::new(counts) })
    }

    /// Returns the completion queue of the send queue.
    #[must_use]
    pub fn send_cqn(&self) -> Cqn {
        self.send_cqn
    }

    /// Returns whether there is room for another message.
    #[must_use]
    pub fn has_room(&self, host: &ProcessHost) -> bool {
        let mut counts = self.counts.lock();
        while let Some(completion) = self.sends.take(host) {
            counts.done = completion.wqe_index.get().wrapping_add(1);
        }
        counts.posted.wrapping_sub(counts.done) < 1 << SENDS_LOG
    }

    /// Sends a message to the queue pair 1 of a peer, if there is room ([`Self::has_room`]).
    pub fn send(&self, host: &ProcessHost, to: &AddressVector, mad: &Mad) {
        let mut counts = self.counts.lock();
        if counts.posted.wrapping_sub(counts.done) >= 1 << SENDS_LOG {
            return;
        }
        let header = SqWqe {
            // CAST: the enum's number.
            opcode: Opcode::Send as u8,
            flags: (Flags::SIGNALED | Flags::INLINE).bits(),
            count: (MAD_LEN as u16).into(),
            ..SqWqe::default()
        };
        let to = DatagramSeg { av: *to, dest_qpn: Qpn::new(GSI_QPN), qkey: QKEY.into() };
        let entry = [header.as_bytes(), to.as_bytes(), mad].concat();
        let index = u64::from(counts.posted) & ((1 << SENDS_LOG) - 1);
        let at = self.base + SENDS + (index << SEND_STRIDE_LOG);
        // The ring is inside of the driver's memory.
        let _always = words::write(host.driver(), at, &entry);
        counts.posted = counts.posted.wrapping_add(1);
        host.bar_store32(self.doorbell.sq_pi(), counts.posted);
        host.ring(self.doorbell);
    }

    /// Returns whether a message has arrived.
    #[must_use]
    pub fn has_received(&self, host: &ProcessHost) -> bool {
        self.receives.any(host)
    }

    /// Takes the next message that has arrived. `None` if there is none, or if the next datagram
    /// was no message of a queue pair 1.
    pub fn receive(&self, host: &ProcessHost) -> Option<Received> {
        let mut counts = self.counts.lock();
        let completion = self.receives.take(host)?;
        let received = self.read(host, &completion);
        // A queue pair that has failed takes no receives any more.
        // CAST: the enum's number.
        if completion.status == Status::Success as u8 {
            // Receives complete in order, so the next one has the place of this one.
            counts.receives = counts.receives.wrapping_add(1);
            host.bar_store32(self.doorbell.rq_pi(), counts.receives);
        }
        received
    }

    /// Returns the message in the buffer of a completion.
    fn read(&self, host: &ProcessHost, completion: &Cqe) -> Option<Received> {
        // CAST: the enum's number.
        if completion.status != Status::Success as u8
            || completion.byte_len.get() != RECEIVE_LEN
            || completion.src_qpn.get() != GSI_QPN
        {
            return None;
        }
        let index = u64::from(completion.wqe_index.get()) & ((1 << RECEIVES_LOG) - 1);
        let mut bytes = [0; RECEIVE_LEN as usize];
        words::read(host.driver(), self.base + BUFFERS + index * BUFFER_LEN, &mut bytes)?;
        let (header, mad) = bytes.split_first_chunk::<{ GRH_LEN as usize }>()?;
        let is_ipv4 = completion.flags.get() & CqeFlags::IPV4.bits() != 0;
        let [source, dest] = addresses(header, is_ipv4);
        Some(Received { source, dest, mac: completion.smac, mad: mad.try_into().ok()? })
    }
}

/// Returns the GIDs of the sender and of the receiver in a network header.
fn addresses(header: &[u8; GRH_LEN as usize], is_ipv4: bool) -> [Gid; 2] {
    // An IPv4 header is at the end of the place for the header.
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    if is_ipv4 {
        return [[s0, s1, s2, s3], [d0, d1, d2, d3]].map(|address| ipv4_gid(address.into()));
    }
    let mut gids = [[0; 16]; 2];
    for (gid, from) in gids.iter_mut().zip([8, 24]) {
        gid.iter_mut().zip(header.iter().skip(from)).for_each(|(to, from)| *to = *from);
    }
    gids
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vrnic_abi::qp::NO_VLAN;
    use vrnic_packet::MacAddr;

    use super::*;
    use crate::adapter::driver::Driver;
    use crate::adapter::host::system_clock;
    use crate::memory::spaces::Spaces;
    use crate::trap::tree::link_local_gid;

    /// Returns two adapters in a network, and the GIDs of each.
    fn pair() -> [(Driver, [Gid; 2]); 2] {
        let spaces = Arc::new(Spaces::default());
        let fabric = Arc::default();
        [1, 2].map(|last| {
            let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
            let mac = [2, 0, 0, 0, 0, last];
            let driver = Driver::new("vrnic", MacAddr(mac), host, Driver::most(), &fabric);
            let driver = driver.expect("an adapter");
            let gids = [link_local_gid(mac), ipv4_gid([127, 0, 0, last].into())];
            (0..).zip(gids).for_each(|(index, gid)| driver.set_gid(index, gid).expect("a GID"));
            (driver, gids)
        })
    }

    fn poll(drivers: [&Driver; 2]) {
        while drivers.iter().any(|driver| driver.adapter().poll(0).busy) {}
    }

    #[test]
    fn messages_arrive_with_the_addresses_of_both_sides() {
        let [(first, own), (second, peer)] = pair();
        for index in 0..2 {
            let to = AddressVector {
                dgid: peer[index],
                dmac: second.adapter().mac().0,
                vlan: NO_VLAN.into(),
                sgid_index: (index as u16).into(),
                hop_limit: 64,
                ..AddressVector::default()
            };
            // More than both queues have entries.
            for number in 0..1000u32 {
                let mut mad = [7; MAD_LEN];
                mad[252..].copy_from_slice(&number.to_be_bytes());
                assert!(first.gsi().has_room(first.host()));
                first.gsi().send(first.host(), &to, &mad);
                poll([&first, &second]);
                assert!(second.gsi().has_received(second.host()));
                let received = second.gsi().receive(second.host()).expect("a message");
                assert_eq!((received.source, received.dest), (own[index], peer[index]));
                assert_eq!((received.mac, received.mad), (first.adapter().mac().0, mad));
            }
            assert!(second.gsi().receive(second.host()).is_none());
        }
    }

    #[test]
    fn messages_without_room_are_lost_and_later_ones_arrive() {
        let [(first, _), (second, peer)] = pair();
        let to = AddressVector {
            dgid: peer[0],
            dmac: second.adapter().mac().0,
            vlan: NO_VLAN.into(),
            ..AddressVector::default()
        };
        let mut sent = 0;
        while first.gsi().has_room(first.host()) {
            first.gsi().send(first.host(), &to, &[1; MAD_LEN]);
            sent += 1;
        }
        assert_eq!(sent, 1 << SENDS_LOG);
        for _ in 0..4 {
            poll([&first, &second]);
            while first.gsi().has_room(first.host()) {
                first.gsi().send(first.host(), &to, &[1; MAD_LEN]);
            }
        }
        let received = || second.gsi().receive(second.host());
        assert_eq!(std::iter::from_fn(received).count(), 1 << RECEIVES_LOG);
        poll([&first, &second]);
        assert!(received().is_some());
    }
}
