//! Calls that run out of memory. Each call is made with no memory, then with enough for one
//! allocation, for two, and so on until it succeeds. Each failure must be ENOMEM and leave nothing
//! allocated. The caller of this program counts the objects that are left in the kernel.

use std::fmt::Display;
use std::io;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::heap;
use crate::loopback::region;
use vrnic_verbs::adapter::direct::QpExtras;
use vrnic_verbs::address::Ah;
use vrnic_verbs::context::{Context, PORT};
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::memory::{Mr, Pd, Td};
use vrnic_verbs::model::{
    Destination, DeviceInfo, Op, Path, QpAttr, QpCap, SendWr, Sge, State, mask, qp_type,
};
use vrnic_verbs::qp::{InitAttr, Qp};
use vrnic_verbs::srq::Srq;
use vrnic_verbs::window::Mw;
use vrnic_verbs::xrc::Xrcd;

/// More than the allocations of any call.
const MANY: u64 = 100;
const QKEY: u32 = 0x1111_1111;

/// The options of `starve`.
#[derive(Debug, Args)]
pub(crate) struct Starve {
    /// Give all calls enough memory. In the end the process holds the objects that it must also
    /// hold without this option.
    #[arg(long)]
    plenty: bool,
}

impl Starve {
    /// Creates an object by a call with too little memory, then with more until the call succeeds.
    /// Then destroys the object.
    fn call<T>(
        &self,
        what: impl Display,
        make: impl Fn() -> io::Result<T>,
        end: impl Fn(T) -> io::Result<()>,
    ) -> Result<()> {
        // Libraries keep some of their first allocations.
        make().and_then(&end).with_context(|| format!("{what}, with memory"))?;
        if self.plenty {
            return Ok(());
        }
        let before = heap::live();
        for count in 0..MANY {
            let made = heap::with_allocations(count, &make);
            let enough = made.is_ok();
            match made {
                Ok(object) => end(object).with_context(|| format!("the end of {what}"))?,
                Err(error) => ensure!(
                    error.raw_os_error() == Some(libc::ENOMEM),
                    "{what} after {count} allocations: {error}"
                ),
            }
            let left = heap::live() - before;
            ensure!(left == 0, "{what} after {count} allocations: {left} are left");
            if enough {
                ensure!(count > 0, "{what} allocates nothing");
                println!("{what}: {count} allocations");
                return Ok(());
            }
        }
        anyhow::bail!("{what} never finds enough memory")
    }

    /// Makes all calls, and then waits until the process is killed.
    pub(crate) fn run(&self) -> Result<()> {
        let context = Context::open(None)?;
        let info = context.info()?;
        let pd = Pd::new(&context)?;
        let xrcd = Xrcd::open(&context, None, libc::O_CREAT)?;
        let cq = Cq::new(&context, 16, None, 0, false)?;
        let own = Own { context, info, pd, xrcd, cq };
        self.domains(&own)?;
        self.memory(&own)?;
        self.completion_queues(&own)?;
        self.shared_queues(&own)?;
        self.queue_pairs(&own)?;
        self.requests(&own)?;
        println!("done");
        loop {
            thread::sleep(Duration::MAX);
        }
    }

    fn domains(&self, own: &Own) -> Result<()> {
        let Own { context, pd, .. } = own;
        self.call("open_device", || context.again(), Context::close)?;
        self.call("alloc_pd", || Pd::new(context), |pd| pd.destroy().map_err(|(_, e)| e))?;
        self.call("alloc_td", || Td::new(context), |td| td.destroy().map_err(|(_, e)| e))?;
        let td = Td::new(context)?;
        let parent = || pd.parent(context, &td, false);
        self.call("alloc_parent_domain", parent, |pd| pd.destroy().map_err(|(_, e)| e))?;
        let open = || Xrcd::open(context, None, libc::O_CREAT);
        self.call("open_xrcd", open, |xrcd| xrcd.close().map_err(|(_, e)| e))?;
        let path = own.path();
        self.call("create_ah", || Ah::new(pd, &path), |ah| ah.destroy().map_err(|(_, e)| e))
    }

    fn memory(&self, own: &Own) -> Result<()> {
        let pd = &own.pd;
        let end = |mr: Mr| mr.destroy().map_err(|(_, e)| e);
        let buffer = Buffer::new(4096, 0)?;
        self.call("reg_mr", || Mr::new(pd, buffer.addr(), 4096, 0), end)?;
        let one_touch = || Mr::for_one_touch(pd, buffer.addr(), 4096, 0);
        self.call("vrnicdv_reg_mr", one_touch, end)?;
        let dmabuf = Buffer::of_dmabuf(4096, 0)?;
        self.call("reg_dmabuf_mr", || Mr::of_dmabuf(pd, &dmabuf, 0), end)?;
        self.call("alloc_mw", || Mw::new(pd, 1), |mw| mw.destroy().map_err(|(_, e)| e))
    }

    fn completion_queues(&self, own: &Own) -> Result<()> {
        let context = &own.context;
        let end = |cq: Cq| cq.destroy().map_err(|(_, e)| e);
        self.call("create_cq", || Cq::new(context, 16, None, 0, false), end)?;
        self.call("create_cq_ex", || Cq::new(context, 16, None, 0, true), end)?;
        let direct = || Ok(Cq::direct(context, 16, None, (0, true))?.0);
        self.call("vrnicdv_create_cq", direct, end)?;
        self.call("resize_cq", || own.cq.resize(64), |()| own.cq.resize(16))
    }

    fn shared_queues(&self, own: &Own) -> Result<()> {
        let Own { pd, xrcd, cq, .. } = own;
        let end = |srq: Srq| srq.destroy().map_err(|(_, e)| e);
        self.call("create_srq", || Ok(Srq::new(pd, 4, 1)?.0), end)?;
        self.call("create_srq_ex", || Ok(Srq::for_xrc(pd, xrcd, cq, (4, 1))?.0), end)?;
        let end = |qp: Qp| qp.destroy().map_err(|(_, e)| e);
        self.call("create_qp_ex of a target", || Qp::target(xrcd), end)?;
        let target = Qp::target(xrcd)?;
        self.call("open_qp", || Qp::open(xrcd, target.number()), end)
    }

    fn queue_pairs(&self, own: &Own) -> Result<()> {
        let commands = QpExtras { tag_form: 1, max_command_sge: 1, ..QpExtras::default() };
        for kind in [qp_type::RC, qp_type::UC, qp_type::UD, qp_type::XRC_SEND] {
            for inline in [0, 64] {
                let what = |by: &str| format!("{by} of type {kind} with {inline} bytes inline");
                let plain = || own.qp((kind, inline), None, Qp::new);
                self.call(what("create_qp"), plain, end_qp)?;
                let extended = || own.qp((kind, inline), None, Qp::extended);
                self.call(what("create_qp_ex"), extended, end_qp)?;
            }
        }
        let direct = || own.qp((qp_type::RC, 0), None, |init| Qp::direct(init, &commands));
        self.call("vrnicdv_create_qp", direct, end_qp)?;
        let (srq, _) = Srq::new(&own.pd, 4, 1)?;
        let sharing = || own.qp((qp_type::RC, 0), Some(&srq), Qp::new);
        self.call("create_qp with a shared receive queue", sharing, end_qp)
    }

    /// Posts requests whose data are set before their destination.
    fn requests(&self, own: &Own) -> Result<()> {
        let Own { pd, .. } = own;
        let (qp, cq) = own.qp((qp_type::UD, 64), None, Qp::extended)?;
        let attr = QpAttr { port: PORT, qkey: QKEY, ..QpAttr::default() };
        let init = mask::STATE | mask::PKEY_INDEX | mask::PORT | mask::QKEY;
        for (state, mask) in [
            (State::Init, init),
            (State::Rtr, mask::STATE),
            (State::Rts, mask::STATE | mask::SQ_PSN),
        ] {
            qp.modify(&QpAttr { state: state as u32, ..attr }, mask)?;
        }
        let ah = Ah::new(pd, &own.path())?;
        let (buffer, mr) = region(pd, 4096)?;
        for (what, flags) in [("segments", 0), ("inline data", vrnic_verbs::model::flags::INLINE)] {
            let send = SendWr {
                // If the identifier of a request is odd, its data are set first.
                wr_id: 1,
                op: Op::Send,
                flags,
                sges: vec![Sge { addr: buffer.addr(), length: 8, lkey: mr.keys().0 }],
                to: Some(Destination { ah: 0, qpn: qp.number(), qkey: QKEY }),
                ..SendWr::default()
            };
            let post = || {
                qp.post_send_to(std::slice::from_ref(&send), &[Some(&ah)])
                    .map_err(|refused| refused.error)
            };
            self.call(format!("a datagram of {what}"), post, Ok)?;
        }
        end_qp((qp, cq))?;
        mr.destroy().map_err(|(_, e)| e)?;
        Ok(ah.destroy().map_err(|(_, e)| e)?)
    }
}

/// The objects with which calls are made.
struct Own {
    context: Context,
    info: DeviceInfo,
    pd: Pd,
    xrcd: Xrcd,
    cq: Cq,
}

impl Own {
    /// Returns the path to the port itself.
    fn path(&self) -> Path {
        let (dgid, sgid_index) = (self.info.gid, self.info.gid_index);
        Path { dgid, sgid_index, hop_limit: 64, port: PORT, ..Path::default() }
    }

    /// Creates a QP with its own CQ. If the QP cannot be created, the CQ is destroyed.
    fn qp(
        &self,
        (qp_type, inline): (u32, u32),
        srq: Option<&Srq>,
        create: impl Fn(&InitAttr<'_>) -> io::Result<(Qp, QpCap)>,
    ) -> io::Result<(Qp, Cq)> {
        let cq = Cq::new(&self.context, 16, None, 0, false)?;
        let cap = QpCap { send_wr: 8, recv_wr: 4, send_sge: 1, recv_sge: 1, inline };
        match create(&InitAttr { qp_type, srq, ..InitAttr::new(&self.pd, &cq, cap) }) {
            Ok((qp, _)) => Ok((qp, cq)),
            Err(error) => {
                cq.destroy().map_err(|(_, e)| e)?;
                Err(error)
            }
        }
    }
}

fn end_qp((qp, cq): (Qp, Cq)) -> io::Result<()> {
    qp.destroy().map_err(|(_, e)| e)?;
    cq.destroy().map_err(|(_, e)| e)
}
