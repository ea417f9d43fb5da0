//! A program that posts requests after its device was removed, before it polls for the first time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use crate::loopback::{connect, region};
use vrnic_verbs::context::Context;
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::Pd;
use vrnic_verbs::model::{Op, QpCap, SendWr, Sge, Status, flags, qp_type};
use vrnic_verbs::qp::{InitAttr, Qp};

/// Time limit of the device's removal, and of the completions.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a message, which fit into a request.
const LEN: u32 = 64;

/// The options of `late`.
#[derive(Debug, Args)]
pub(crate) struct Late {
    /// Queue pairs. Their doorbells are at consecutive places of 64 bytes.
    #[arg(long, default_value_t = 200)]
    count: u32,
    /// Room for inline data, so that their send queues are in the adapter's memory.
    #[arg(long)]
    inline: bool,
}

/// Posts a request on each QP after the device was removed. Checks that all requests are flushed.
pub(crate) fn run(options: &Late) -> Result<()> {
    let context = Context::open(None)?;
    let (info, pd) = (context.info()?, Pd::new(&context)?);
    let cq = Cq::new(&context, i32::try_from(options.count * 4)?, None, 0, false)?;
    let inline = if options.inline { LEN } else { 0 };
    let cap = QpCap { send_wr: 4, recv_wr: 1, send_sge: 1, recv_sge: 1, inline };
    let mut qps = Vec::new();
    for _ in 0..options.count {
        let (qp, _) = Qp::new(&InitAttr::new(&pd, &cq, cap))?;
        connect(&qp, qp_type::RC, &info)?;
        qps.push(qp);
    }
    let (buffer, mr) = region(&pd, 4096)?;
    println!("in use");
    wait_for_removal(context.name())?;
    let (lkey, rkey) = mr.keys();
    for qp in &qps {
        for nth in 1..=3 {
            let write = SendWr {
                wr_id: u64::from(qp.number()) << 8 | nth,
                op: Op::Write,
                flags: flags::SIGNALED,
                sges: vec![Sge { addr: buffer.addr(), length: LEN, lkey }],
                raddr: buffer.addr() + 2048,
                rkey,
                ..SendWr::default()
            };
            qp.post_send(&[write]).map_err(|refused| refused.error)?;
        }
    }
    let (end, mut flushed) = (Instant::now() + LIMIT, 0);
    while flushed < options.count * 3 {
        ensure!(Instant::now() < end, "{flushed} of {} are flushed", options.count * 3);
        for wc in cq.poll(16)? {
            ensure!(wc.status == Status::WrFlushErr as u32, "not flushed: {wc:?}");
            flushed += 1;
        }
    }
    println!("all is flushed");
    Ok(())
}

/// Waits until the device has been unregistered, which is the last step of its removal, and then
/// until the kernel has replaced its mappings.
fn wait_for_removal(device: &str) -> Result<()> {
    let folder = std::path::Path::new("/sys/class/infiniband").join(device);
    let end = Instant::now() + LIMIT;
    while folder.exists() {
        ensure!(Instant::now() < end, "the device stays");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_secs(1));
    Ok(())
}
