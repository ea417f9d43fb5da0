//! The records of objects that INSPECT lists.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::Qpn;
use vrnic_abi::admin::{
    CqRecord, Doing, EqRecord, KeyRecord, NONE, QpRecord, RingRecord, SrqRecord,
};
use vrnic_abi::qp::Access;

use super::Page;
use crate::adapter::Adapter;
use crate::host::Host;
use crate::memory::mtt::segments;
use crate::memory::tpt::Known;
use crate::objects::id_table::IdTable;
use crate::objects::qp::{Path, Qp, Requester, SendRing};

/// Maximum number of entries of the table of keys that one command examines.
const ENTRIES_EXAMINED: u32 = 1 << 16;

impl<H: Host> Adapter<H> {
    /// Returns up to `limit` queue pairs, from the number `from` on.
    #[must_use]
    pub fn qp_records(&self, from: u32, limit: usize) -> Page<QpRecord> {
        Page::of(self.qps_from(from).iter().map(|qp| (qp.qpn.get(), self.qp_record(qp))), limit)
    }

    /// Returns up to `limit` completion queues, from the number `from` on.
    #[must_use]
    pub fn cq_records(&self, from: u32, limit: usize) -> Page<CqRecord> {
        let all = from_on(&self.objects.cqs, from, |cq| cq.cqn.get());
        Page::of(all.iter().map(|cq| (cq.cqn.get(), cq.record(self.host()))), limit)
    }

    /// Returns up to `limit` event queues, from the number `from` on.
    #[must_use]
    pub fn eq_records(&self, from: u32, limit: usize) -> Page<EqRecord> {
        let asynchronous = self.core().asynchronous.read().clone().filter(|_| from == 0);
        let all = from_on(&self.objects.eqs, from, |eq| eq.eqn.get());
        let eqs = asynchronous.into_iter().chain(all);
        Page::of(eqs.map(|eq| (eq.eqn.get(), eq.record(self.host()))), limit)
    }

    /// Returns up to `limit` shared receive queues, from the number `from` on.
    #[must_use]
    pub fn srq_records(&self, from: u32, limit: usize) -> Page<SrqRecord> {
        let all = from_on(&self.objects.srqs, from, |srq| srq.srqn.get());
        Page::of(all.iter().map(|srq| (srq.srqn.get(), srq.record(self.host()))), limit)
    }

    /// Returns up to `limit` keys, from the index `from` on. There may be fewer or none although
    /// more follow, if much of the table is empty.
    #[must_use]
    pub fn key_records(&self, from: u32, limit: usize) -> Page<KeyRecord> {
        let mut records = Vec::new();
        let tpt = self.tpt();
        let (first, end) = (from.max(1), tpt.end());
        let last = end.min(first.saturating_add(ENTRIES_EXAMINED));
        for index in first..last {
            let Some(known) = tpt.known(index) else { continue };
            if records.len() == limit {
                return Page { items: records, next: Some(index) };
            }
            records.push(KeyRecord::from(&known));
        }
        Page { items: records, next: (last < end).then_some(last) }
    }

    /// Returns the queue pairs from the number `from` on, in the order of their numbers.
    pub(super) fn qps_from(&self, from: u32) -> Vec<Arc<Qp<H>>> {
        let mut qps = self.objects.all_qps();
        qps.retain(|qp| qp.qpn.get() >= from);
        qps.sort_unstable_by_key(|qp| qp.qpn);
        qps
    }

    /// Returns the record of the send queue.
    fn send_ring(&self, qp: &Qp<H>) -> RingRecord {
        let next = qp.next_send.load(Ordering::Relaxed);
        match &qp.sq {
            SendRing::None => RingRecord::default(),
            SendRing::Guest(sq) => {
                let posted = self.host().bar_load32(qp.doorbell.sq_pi());
                ring(sq.size(), posted, next)
            }
            // The number of posted entries is not counted: the record has 1 if there are any.
            SendRing::Device(sq) => {
                let posted = next.wrapping_add(qp.has_posted(self.host()).into());
                ring(sq.size(), posted, next)
            }
        }
    }

    fn qp_record(&self, qp: &Qp<H>) -> QpRecord {
        let attr = *qp.attr.lock();
        let connected = qp.is_connected();
        let sq = self.send_ring(qp);
        let in_device = matches!(qp.sq, SendRing::Device(_));
        let responder = qp.responder.try_lock();
        let rq = qp.rq.as_ref().map_or(RingRecord::default(), |rq| {
            let posted = self.host().bar_load32(qp.doorbell.rq_pi());
            ring(rq.size(), posted, responder.as_ref().map_or(posted, |responder| responder.ci))
        });
        let mut record = QpRecord {
            qpn: qp.qpn,
            kind: qp.kind as u8,
            state: qp.state() as u8,
            path_mtu: attr.path_mtu,
            sq_in_device: in_device.into(),
            context: qp.context,
            pdn: qp.pdn,
            send_cqn: qp.send_cq.cqn,
            recv_cqn: qp.recv_cq.cqn,
            srqn: qp.srq.as_ref().map_or(NONE, |srq| srq.srqn.get()).into(),
            dest_qpn: if connected { attr.dest_qpn } else { NONE.into() },
            dmac: if connected { attr.av.dmac } else { [0; 6] },
            // CAST: there are at most [`crate::adapter::WORKERS_MAX`].
            worker: (qp.worker() as u16).into(),
            uar: qp.doorbell.uar(),
            slot: qp.doorbell.slot(),
            sq,
            rq,
            // A message holds the lock, or has taken a receive and is not complete.
            receiving: responder.is_none_or(|responder| responder.current.is_some()).into(),
            doing: Doing::Busy as u8,
            ..QpRecord::default()
        };
        if let Some(requester) = qp.requester.try_lock() {
            describe(&requester, &mut record);
        }
        record
    }
}

/// Returns the record of a queue with these numbers.
fn ring(size: u32, posted: u32, next: u32) -> RingRecord {
    RingRecord { size: size.into(), posted: posted.into(), next: next.into() }
}

/// Fills in the state of the sending half.
fn describe<H: Host>(requester: &Requester<H>, record: &mut QpRecord) {
    let connection = match &requester.path {
        Path::Tcp(tcp) => Some((tcp.link.life().stage(), tcp.link.ends().path.to)),
        Path::Memory | Path::Packets(_) | Path::Promised(_) => None,
    };
    if let Some((stage, to)) = connection {
        record.connection = stage as u8;
        (record.dest_qpn, record.dmac) = (NONE.into(), to.0);
    }
    let current = requester.current.as_ref().map(|send| (send, requester.done));
    let read = requester.open_reads.oldest_read().map(|read| (&read.send, read.done));
    let waits = match read {
        Some(_) => requester.open_reads.resume_at,
        None => requester.not_before,
    };
    let oldest = read.or(current);
    record.doing = match (oldest, waits) {
        (None, _) => Doing::Nothing,
        (Some(_), None) => Doing::Working,
        (Some(_), Some(_)) => Doing::Waiting,
    } as u8;
    if let Some((send, done)) = oldest {
        record.wr_id = send.wr_id.into();
        record.done = done.into();
        record.retries = requester.retries;
        record.rnr_retries = requester.rnr_retries;
    }
}

/// Returns the objects of a table from a number on.
fn from_on<N: From<u32> + Into<u32>, T>(
    table: &IdTable<N, T>,
    from: u32,
    number: impl Fn(&T) -> u32,
) -> Vec<Arc<T>> {
    let mut all = table.all();
    all.retain(|object| number(object) >= from);
    all
}

impl From<&Known> for KeyRecord {
    fn from(known: &Known) -> Self {
        let none = Self {
            key: known.key,
            pdn: known.pdn,
            qpn: NONE.into(),
            kind: known.kind as u8,
            windows: known.windows.into(),
            ..Self::default()
        };
        let Some(mr) = &known.valid else { return none };
        let paged = mr.table.depth != 0 && !segments::is(&mr.table);
        let zero_based = mr.access.contains(Access::ZERO_BASED);
        Self {
            key: mr.key,
            pdn: mr.pdn,
            qpn: if mr.qpn == Qpn::default() { NONE.into() } else { mr.qpn },
            access: mr.access.bits().into(),
            base: if zero_based { 0 } else { mr.iova }.into(),
            length: mr.length.into(),
            page_shift: if paged { mr.table.shift } else { 0 },
            valid: 1,
            one_touch: mr.one_touch.into(),
            ..none
        }
    }
}
