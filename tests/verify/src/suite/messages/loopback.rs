//! Both ends on one device, in one process.
//!
//! Shows: data

use anyhow::Result;

use super::data::{MOVERS, movers, transfer};
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side};
use vrnic_verbs::model::Op;

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = MOVERS
        .into_iter()
        .map(|op| Case::new(format!("loopback/two_qps/{}", op.name()), move |env| two_qps(env, op)))
        .collect();
    cases.push(Case::new("loopback/qp_to_itself", to_itself));
    cases.push(Case::new("loopback/two_processes", two_processes));
    cases
}

fn two_qps(env: &Env, op: Op) -> Result<()> {
    let link = Link::between(&env.a, &env.a, &Options::default())?;
    [0, 1, 4097, 1 << 20].into_iter().try_for_each(|size| transfer(&link, op, size, 3, 8))
}

/// A QP that is connected to itself: its sends use its own receives.
fn to_itself(env: &Env) -> Result<()> {
    let side = Side::new(&env.a, &Options::default())?;
    side.connect(&env.a, side.qpn)?;
    let (source, target) = (side.region(5000, 1)?, side.region(5000, 2)?);
    source.fill(3)?;
    side.send(&side, &[source.sge()], &[target.sge()])?;
    target.check(3)
}

fn two_processes(env: &Env) -> Result<()> {
    let link = Link::between(&env.a, &env.another_a()?, &Options::default())?;
    movers(env).iter().try_for_each(|op| transfer(&link, *op, 70_001, 3, 8))
}
