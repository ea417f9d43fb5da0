//! Attributes of the device and its port, and operations that they do not have.
//!
//! Shows: resources

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_errno, one_of};
use vrnic_verbs::model::access;

/// Registration of memory that need not be present (`IBV_ACCESS_ON_DEMAND`).
const ON_DEMAND: u32 = 1 << 6;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("attributes/device", device),
        Case::new("attributes/port", port),
        Case::new("attributes/gids", gids),
        Case::new("attributes/pkeys", pkeys),
        Case::new("attributes/what_is_not_there", unsupported),
        Case::new("attributes/absent_ones_of_queue_pairs", absent),
    ]
}

fn device(env: &Env) -> Result<()> {
    for end in [&env.a, &env.b] {
        let info = end.agent.query()?;
        let parts: Vec<_> = info.firmware.split('.').collect();
        let numbers = parts.iter().all(|part| part.parse::<u16>().is_ok());
        ensure!(parts.len() == 3 && numbers, "firmware version '{}'", info.firmware);
        ensure!(info.node_guid != 0, "no node GUID");
        ensure!(
            info.node_guid == info.sys_image_guid,
            "node {:#x}, system {:#x}",
            info.node_guid,
            info.sys_image_guid
        );
        ensure!((info.ports, info.max_pkeys) == (1, 1), "{} ports", info.ports);
        ensure!(info.max_mw > 0 && info.atomic_cap > 0, "no windows or atomics: {info:?}");
        let limits = [info.max_qp, info.max_cq, info.max_pd, info.max_mr, info.max_cqe];
        ensure!(limits.iter().all(|limit| *limit > 0), "a limit is zero: {info:?}");
        let atomics = (info.max_qp_rd_atom, info.max_qp_init_rd_atom);
        ensure!(atomics.0 > 0 && atomics.1 > 0, "READs outstanding: {atomics:?}");
    }
    let (a, b) = (env.a.info.node_guid, env.b.info.node_guid);
    ensure!(env.a.info.gid == env.b.info.gid || a != b, "both nodes have GUID {a:#x}");
    Ok(())
}

/// Returns the rate in Mbit/s of a lane of `enum ib_port_speed`.
fn lane(speed: u8) -> Option<u64> {
    Some(match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => return None,
    })
}

/// Returns the lanes of an `enum ib_port_width`.
fn lanes(width: u8) -> Option<u64> {
    Some(match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    })
}

fn port(env: &Env) -> Result<()> {
    const ACTIVE: u32 = 4;
    const LINK_UP: u8 = 5;
    const ETHERNET: u8 = 2;
    let info = env.a.agent.query()?;
    let port = info.port;
    ensure!((port.state, port.phys_state) == (ACTIVE, LINK_UP), "state of {port:?}");
    ensure!((port.link_layer, port.lid) == (ETHERNET, 0), "link of {port:?}");
    ensure!((1..=port.max_mtu).contains(&info.active_mtu), "MTU {} of {port:?}", info.active_mtu);
    ensure!(info.max_msg_sz >= 1 << 30, "messages of {} bytes", info.max_msg_sz);
    let rate = lanes(port.width).zip(lane(port.speed)).map(|(lanes, lane)| lanes * lane);
    ensure!(rate.is_some_and(|rate| rate >= 10_000), "width and speed of {port:?}");
    for bad in [0, 2, 255] {
        let what = format!("port {bad}");
        expect_errno(&what, env.a.agent.query_port(bad), Errno::INVAL)?;
    }
    Ok(())
}

fn gids(env: &Env) -> Result<()> {
    let info = &env.a.info;
    let gid = env.a.agent.query_gid(info.gid_index.into())?;
    ensure!(gid == info.gid, "GID {} is {gid:x?}, not {:x?}", info.gid_index, info.gid);
    let first = env.a.agent.query_gid(0)?;
    ensure!(first[..2] == [0xfe, 0x80], "the first GID {first:x?} is not link-local");
    for bad in [info.port.gids, -1, i32::MAX] {
        // The library reads a file of the kernel, which does not exist for this index.
        let errnos = [Errno::INVAL, Errno::NOENT, Errno::NODATA];
        one_of(&format!("GID {bad}"), env.a.agent.query_gid(bad), &errnos)?;
    }
    Ok(())
}

fn pkeys(env: &Env) -> Result<()> {
    ensure!(env.a.info.port.pkeys == 1, "{} partition keys", env.a.info.port.pkeys);
    let key = env.a.agent.query_pkey(0)?;
    ensure!(key == 0xffff, "partition key {key:#x}");
    for bad in [1, -1, 70_000] {
        let errnos = [Errno::INVAL, Errno::NOENT];
        one_of(&format!("key {bad}"), env.a.agent.query_pkey(bad), &errnos)?;
    }
    Ok(())
}

/// Operations that the device does not have fail as "not supported". Paging on demand is one of
/// them with iWARP, which has no partition keys.
fn unsupported(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let pd = agent.alloc_pd()?;
    let buffer = agent.alloc_buffer(4096, 0)?;
    let rights = access::ALL | ON_DEMAND;
    let on_demand = agent.reg_mr(pd, buffer.addr, 4096, rights);
    if env.a.info.port.pkeys > 0 {
        let mr = on_demand.context("paging on demand")?;
        agent.dereg_mr(mr.mr)?;
        return Ok(());
    }
    expect_errno("memory on demand", on_demand, Errno::OPNOTSUPP).context("paging on demand")
}

/// Attributes that the device does not have are zero, not former contents of the kernel's memory.
/// Each query gets other memory of the kernel.
///
/// Shows: resources: absent attributes of queue pairs are zero
fn absent(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let reset = Side::new(&env.a, &Options::default())?;
    let link = Link::new(env, &Options::default())?;
    for qp in [reset.qp, link.a.qp] {
        for round in 0..50 {
            let found = agent.query_qp_absent(qp)?;
            ensure!(found.iter().all(|value| *value == 0), "query {round}: {found:x?}");
        }
    }
    Ok(())
}
