//! A QP that is connected to itself, with memory for both ends.

use std::io;
use std::time::{Duration, Instant};

use vrnic_verbs::context::{Context, PORT};
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::memory::{Mr, Pd};
use vrnic_verbs::model::{
    DeviceInfo, Op, QpAttr, QpCap, SendWr, Sge, State, access, flags, mask, qp_type,
};
use vrnic_verbs::qp::{InitAttr, Qp};

/// Bytes of a message. The region is twice as long.
pub(crate) const LEN: usize = 32 << 10;
/// Time limit for a message.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a region of memory that this process does not access before the device does.
pub(crate) fn region(pd: &Pd, len: usize) -> io::Result<(Buffer, Mr)> {
    let buffer = Buffer::new(len, 0)?;
    let mr = Mr::new(pd, buffer.addr(), len as u64, access::ALL | access::MW_BIND)?;
    Ok((buffer, mr))
}

/// Connects a QP to itself. Its type is a connection, reliable or not.
pub(crate) fn connect(qp: &Qp, kind: u32, info: &DeviceInfo) -> io::Result<()> {
    let reliable = kind == qp_type::RC;
    let attr = QpAttr {
        access: if reliable { access::ALL } else { access::REMOTE_WRITE },
        port: PORT,
        path_mtu: info.active_mtu,
        dest_qpn: qp.number(),
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        dgid: info.gid,
        sgid_index: info.gid_index,
        hop_limit: 64,
        ..QpAttr::default()
    };
    let (rtr, rts) = if reliable {
        (mask::TO_RTR, mask::TO_RTS)
    } else {
        let responder = mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
        (mask::TO_RTR & !responder, mask::STATE | mask::SQ_PSN)
    };
    for (state, mask) in [(State::Init, mask::TO_INIT), (State::Rtr, rtr), (State::Rts, rts)] {
        qp.modify(&QpAttr { state: state as u32, ..attr }, mask)?;
    }
    Ok(())
}

/// The QP and the objects that it needs.
pub(crate) struct Own {
    pub(crate) buffer: Buffer,
    pub(crate) mr: Mr,
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    pub(crate) pd: Pd,
}

impl Own {
    /// Creates all of these objects.
    pub(crate) fn new(context: &Context, info: &DeviceInfo) -> io::Result<Self> {
        let pd = Pd::new(context)?;
        let cq = Cq::new(context, 16, None, 0, false)?;
        let cap = QpCap { send_wr: 4, recv_wr: 1, send_sge: 1, recv_sge: 1, inline: 0 };
        let (qp, _) = Qp::new(&InitAttr::new(&pd, &cq, cap))?;
        connect(&qp, qp_type::RC, info)?;
        let (buffer, mr) = region(&pd, 2 * LEN)?;
        Ok(Self { buffer, mr, qp, cq, pd })
    }

    /// Writes bytes of stream `seed` from the first half of the region to the second half. Checks
    /// that they have arrived.
    pub(crate) fn write(&self, seed: u64) -> io::Result<()> {
        self.write_to(seed, LEN, (self.buffer.addr() + LEN as u64, self.mr.keys().1))?;
        self.expect(LEN, seed)
    }

    /// Writes `len` bytes of stream `seed` from the first half of the region to an address of a
    /// key.
    pub(crate) fn write_to(&self, seed: u64, len: usize, to: (u64, u32)) -> io::Result<()> {
        self.buffer.fill(0, len, seed, 0)?;
        let ((raddr, rkey), (lkey, _)) = (to, self.mr.keys());
        let write = SendWr {
            wr_id: seed,
            op: Op::Write,
            flags: flags::SIGNALED,
            sges: vec![Sge { addr: self.buffer.addr(), length: len as u32, lkey }],
            raddr,
            rkey,
            ..SendWr::default()
        };
        self.qp.post_send(&[write]).map_err(|refused| refused.error)?;
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.cq.poll(1)?.first() {
                Some(wc) if wc.status == 0 && wc.wr_id == seed => return Ok(()),
                Some(wc) => return Err(io::Error::other(format!("{wc:?}"))),
                None if Instant::now() > end => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Checks that the bytes of stream `seed` are at `offset`.
    pub(crate) fn expect(&self, offset: usize, seed: u64) -> io::Result<()> {
        match self.buffer.compare(offset, LEN, seed, 0)? {
            None => Ok(()),
            Some(wrong) => Err(io::Error::other(format!("not what was written: {wrong:?}"))),
        }
    }

    /// Destroys all of these objects.
    pub(crate) fn destroy(self) -> io::Result<()> {
        self.qp.destroy().map_err(|(_, e)| e)?;
        self.cq.destroy().map_err(|(_, e)| e)?;
        self.mr.destroy().map_err(|(_, e)| e)?;
        self.pd.destroy().map_err(|(_, e)| e)
    }
}
