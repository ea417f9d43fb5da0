//! A process that has many objects of all kinds and keeps the device busy with them.

use std::io;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::child::Child;
use crate::loopback::{connect, region};
use vrnic_verbs::address::Ah;
use vrnic_verbs::context::{Context, PORT};
use vrnic_verbs::cq::{Channel, Cq};
use vrnic_verbs::flow::Flow;
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::memory::{Mr, Pd};
use vrnic_verbs::model::flow::Ethernet;
use vrnic_verbs::model::rss::{fields, wq_state};
use vrnic_verbs::model::{
    Bind, DeviceInfo, FlowAttr, Hash, Op, Path, QpAttr, QpCap, RecvWr, SendWr, Sge, Spec, State,
    WqAttr, WqChange, access, flags, mask, qp_type,
};
use vrnic_verbs::prng::Rng;
use vrnic_verbs::qp::{InitAttr, Qp};
use vrnic_verbs::rss::{Wq, WqTable};
use vrnic_verbs::srq::Srq;
use vrnic_verbs::window::Mw;
use vrnic_verbs::xrc::Xrcd;

/// Number of objects of a domain before a new domain is created.
const DOMAIN: u64 = 100;
/// Number of entries of a CQ. The QPs of a domain cannot fill more.
const CQE: i32 = 2048;
/// Number of work requests of each queue.
const DEPTH: u32 = 16;
/// Bytes of the region for a domain's messages.
const TRAFFIC: usize = 256 << 10;
const QKEY: u32 = 0x1111_1111;
/// An EtherType for experiments.
const ETHER_TEST: u16 = 0x88b5;

/// Objects of one PD.
struct Domain {
    pd: Pd,
    cq: Cq,
    memory: (Buffer, Mr),
    channels: Vec<Channel>,
    cqs: Vec<Cq>,
    srqs: Vec<Srq>,
    xrcds: Vec<Xrcd>,
    /// SRQs in XRC domains.
    shared: Vec<Srq>,
    targets: Vec<Qp>,
    /// QPs that are connected to themselves.
    qps: Vec<Qp>,
    /// Datagram QPs, each of which is a member of a group.
    datagrams: Vec<(Qp, [u8; 16])>,
    mrs: Vec<(Buffer, Mr)>,
    mws: Vec<Mw>,
    ahs: Vec<Ah>,
    /// QPs that spread frames over work queues.
    spreads: Vec<Spread>,
}

/// A QP that spreads frames over a work queue.
#[expect(dead_code, reason = "the objects end with the process")]
struct Spread {
    /// `None` if the device has too many.
    flow: Option<Flow>,
    /// `None` if the process may not use raw packets.
    qp: Option<Qp>,
    table: WqTable,
    wq: Wq,
}

/// The objects of the process.
pub(crate) struct Workload {
    context: Context,
    info: DeviceInfo,
    rng: Rng,
    domains: Vec<Domain>,
}

impl Workload {
    /// Opens the device.
    pub(crate) fn new(seed: u64) -> io::Result<Self> {
        let context = Context::open(None)?;
        let info = context.info()?;
        Ok(Self { context, info, rng: Rng::new(seed), domains: Vec::new() })
    }

    /// Creates `wanted` objects, calls `made` with the number of those that exist, and uses them
    /// until the process is killed.
    pub(crate) fn live(
        &mut self,
        wanted: u64,
        made: impl Fn(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        for n in 0..wanted {
            if n % DOMAIN == 0 {
                let domain = self.domain()?;
                self.domains.push(domain);
            } else {
                self.grow()?;
            }
            made(n + 1)?;
            self.work()?;
        }
        loop {
            self.work()?;
            thread::yield_now();
        }
    }

    fn domain(&self) -> io::Result<Domain> {
        let pd = Pd::new(&self.context)?;
        let channel = Channel::new(&self.context)?;
        let cq = Cq::new(&self.context, CQE, Some(&channel), 0, false)?;
        Ok(Domain {
            memory: region(&pd, TRAFFIC)?,
            pd,
            cq,
            channels: vec![channel],
            cqs: Vec::new(),
            srqs: Vec::new(),
            xrcds: Vec::new(),
            shared: Vec::new(),
            targets: Vec::new(),
            qps: Vec::new(),
            datagrams: Vec::new(),
            mrs: Vec::new(),
            mws: Vec::new(),
            ahs: Vec::new(),
            spreads: Vec::new(),
        })
    }

    /// Creates an object of any kind in the newest domain, and sometimes destroys an old one.
    fn grow(&mut self) -> io::Result<()> {
        let Self { context, info, rng, domains } = self;
        let Some(domain) = domains.last_mut() else { return Ok(()) };
        match rng.below(100) {
            0..30 => {
                domain.mrs.push(region(&domain.pd, 1 + rng.below(1 << 18) as usize)?);
            }
            30..45 => domain.connected(info, qp_type::RC, rng)?,
            45..50 => domain.connected(info, qp_type::UC, rng)?,
            50..58 => domain.datagram(info, rng)?,
            58..65 => domain.shared_queue()?,
            65..75 => domain.window(rng)?,
            75..83 => domain.ahs.push(Ah::new(&domain.pd, &path(info))?),
            83..90 => {
                let size = 1 + rng.below(1000) as i32;
                domain.cqs.push(Cq::new(context, size, domain.channels.last(), 0, false)?);
            }
            90..92 => domain.channels.push(Channel::new(context)?),
            92..95 => domain.xrc(context)?,
            95..97 => domain.spread(context)?,
            _ => domain.shrink()?,
        }
        Ok(())
    }

    /// Posts to a QP of any domain, and takes the completions there.
    fn work(&mut self) -> io::Result<()> {
        let Self { rng, domains, .. } = self;
        let count = domains.len() as u64;
        let Some(domain) = domains.get(rng.below(count) as usize) else { return Ok(()) };
        let (buffer, mr) = &domain.memory;
        let (lkey, rkey) = mr.keys();
        if let Some(qp) = domain.qps.get(rng.below(domain.qps.len() as u64) as usize) {
            let half = (TRAFFIC / 2) as u32;
            let write = SendWr {
                op: Op::Write,
                flags: flags::SIGNALED,
                sges: vec![Sge { addr: buffer.addr(), length: half, lkey }],
                raddr: buffer.addr() + u64::from(half),
                rkey,
                ..SendWr::default()
            };
            // A full queue is not a fault here.
            let _ = qp.post_send(&[write.clone(), write]);
        }
        while !domain.cq.poll(16)?.is_empty() {}
        domain.cq.arm(false)
    }
}

/// Number of objects that one process holds.
#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// Objects in all.
    #[arg(long)]
    objects: u64,
    /// Seed of the random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Have a child then, which does nothing, but inherits the context.
    #[arg(long)]
    child: bool,
}

/// Creates objects, prints a line when all exist, and uses them until the process is killed.
pub(crate) fn hold(options: &Hold) -> Result<()> {
    let objects = options.objects;
    let tell = |made| {
        if made < objects {
            return Ok(());
        }
        if options.child {
            Child::fork(|| {
                loop {
                    thread::sleep(Duration::MAX);
                }
            })?;
        }
        println!("{objects} objects");
        Ok(())
    };
    Ok(Workload::new(options.seed)?.live(objects, tell)?)
}

impl Domain {
    /// Creates a QP that is connected to itself. Its send queue may be in device memory.
    fn connected(&mut self, info: &DeviceInfo, kind: u32, rng: &mut Rng) -> io::Result<()> {
        let inline = if rng.below(2) == 0 { 0 } else { 64 };
        let qp = self.queue_pair(kind, inline, self.srqs.last().filter(|_| kind == qp_type::RC))?;
        connect(&qp, kind, info)?;
        self.qps.push(qp);
        Ok(())
    }

    /// Creates a member of a multicast group, with posted receives.
    fn datagram(&mut self, info: &DeviceInfo, rng: &mut Rng) -> io::Result<()> {
        let qp = self.queue_pair(qp_type::UD, 0, None)?;
        let attr = QpAttr { port: PORT, qkey: QKEY, ..QpAttr::default() };
        let init = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY;
        let steps = [
            (State::Init, init),
            (State::Rtr, mask::STATE),
            (State::Rts, mask::STATE | mask::SQ_PSN),
        ];
        for (state, mask) in steps {
            qp.modify(&QpAttr { state: state as u32, ..attr }, mask)?;
        }
        let group = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 1, rng.below(9) as u8];
        qp.attach(group, 0)?;
        let receive = self.receive(info.active_mtu);
        qp.post_recv(&[receive.clone(), receive]).map_err(|refused| refused.error)?;
        self.datagrams.push((qp, group));
        Ok(())
    }

    fn shared_queue(&mut self) -> io::Result<()> {
        let (srq, _) = Srq::new(&self.pd, DEPTH, 1)?;
        let receive = self.receive(0);
        srq.post_recv(&[receive.clone(), receive]).map_err(|refused| refused.error)?;
        self.srqs.push(srq);
        Ok(())
    }

    /// Creates an XRC domain with objects in it.
    fn xrc(&mut self, context: &Context) -> io::Result<()> {
        let xrcd = Xrcd::open(context, None, libc::O_CREAT)?;
        self.shared.push(Srq::for_xrc(&self.pd, &xrcd, &self.cq, (DEPTH, 1))?.0);
        self.targets.push(Qp::target(&xrcd)?);
        self.xrcds.push(xrcd);
        Ok(())
    }

    /// Creates a QP that spreads frames over a work queue with posted receives.
    fn spread(&mut self, context: &Context) -> io::Result<()> {
        let (wq, _) = Wq::new(&self.pd, &self.cq, &WqAttr::default())?;
        wq.modify(&WqChange { state: Some(wq_state::READY), ..WqChange::default() })?;
        let receive = self.receive(1);
        wq.post_recv(&[receive.clone(), receive]).map_err(|refused| refused.error)?;
        let table = WqTable::new(context, 3, &[&wq])?;
        let hash = Hash { function: Hash::TOEPLITZ, fields: fields::IPV4, key: vec![7; 40] };
        let qp = match Qp::spreading(&self.pd, &table, qp_type::RAW_PACKET, &hash) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            made => Some(made?),
        };
        // No station sends such frames.
        let value = Ethernet { ether_type: ETHER_TEST, ..Ethernet::default() };
        let mask = Ethernet { ether_type: u16::MAX, ..Ethernet::default() };
        let specs = vec![Spec::ethernet(value, mask)];
        let attr = FlowAttr { specs, ..FlowAttr::default() };
        let flow = qp.as_ref().and_then(|qp| qp.create_flow(&attr).ok());
        self.spreads.push(Spread { flow, qp, table, wq });
        Ok(())
    }

    /// Creates a window. Binds it if there is a QP to do so.
    fn window(&mut self, rng: &mut Rng) -> io::Result<()> {
        let mut mw = Mw::new(&self.pd, 1 + rng.below(2) as u32)?;
        let (buffer, mr) = &self.memory;
        if let Some(qp) = self.qps.last() {
            let bind = Bind {
                flags: flags::SIGNALED,
                addr: buffer.addr(),
                length: 4096,
                access: access::REMOTE_WRITE,
                ..Bind::default()
            };
            // A window of type 2 or a full queue refuses this.
            let _ = mw.bind(qp, Some(mr), &bind);
        }
        self.mws.push(mw);
        Ok(())
    }

    /// Destroys an object of a kind that has several.
    fn shrink(&mut self) -> io::Result<()> {
        if let Some((qp, group)) = self.datagrams.pop() {
            qp.detach(group, 0)?;
            qp.destroy().map_err(|(_, e)| e)?;
        }
        if let Some((buffer, mr)) = self.mrs.pop() {
            mr.destroy().map_err(|(_, e)| e)?;
            buffer.unmap()?;
        }
        if let Some(cq) = self.cqs.pop() {
            cq.destroy().map_err(|(_, e)| e)?;
        }
        Ok(())
    }

    fn queue_pair(&self, qp_type: u32, inline: u32, srq: Option<&Srq>) -> io::Result<Qp> {
        let recv_wr = if srq.is_some() { 0 } else { DEPTH };
        let cap = QpCap { send_wr: DEPTH, recv_wr, send_sge: 1, recv_sge: 1, inline };
        let init = InitAttr { qp_type, srq, ..InitAttr::new(&self.pd, &self.cq, cap) };
        Ok(Qp::new(&init)?.0)
    }

    fn receive(&self, wr_id: u32) -> RecvWr {
        let (buffer, mr) = &self.memory;
        let sge = Sge { addr: buffer.addr(), length: 4096, lkey: mr.keys().0 };
        RecvWr { wr_id: wr_id.into(), sges: vec![sge] }
    }
}

/// Returns the path to the process's own port.
fn path(info: &DeviceInfo) -> Path {
    let (dgid, sgid_index) = (info.gid, info.gid_index);
    Path { dgid, sgid_index, hop_limit: 64, port: PORT, ..Path::default() }
}
