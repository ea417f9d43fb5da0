//! Connections by the connection manager: their private data, rejections, their end.
//!
//! Shows: iwarp

use std::net::SocketAddrV4;

use anyhow::{Context, Result, ensure};

use crate::rpc::values::Listening;
use crate::suite::Case;
use crate::suite::fixture::{End, Env, Options, Side};
use vrnic_verbs::model::{State, Status};

/// Lengths of private data, from none to the maximum.
const LENGTHS: [usize; 4] = [0, 1, 64, 196];

/// Returns the two ends of a case's connections.
type Ends = fn(&Env) -> (&End, &End);

/// The ends of connections: initiator and responder.
const ENDS: [(&str, Ends); 3] = [
    ("a_to_b", |env| (&env.a, &env.b)),
    ("b_to_a", |env| (&env.b, &env.a)),
    ("to_itself", |env| (&env.a, &env.a)),
];

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, ends) in ENDS {
        cases.extend([
            Case::new(format!("connections/private_data/{name}"), move |env| accepted(ends(env))),
            Case::new(format!("connections/rejection/{name}"), move |env| rejected(ends(env))),
            Case::new(format!("connections/closed/{name}"), move |env| closed(ends(env))),
        ]);
    }
    cases.into_iter().map(Case::managed).collect()
}

/// Returns a side whose QP can be connected.
fn side(end: &End) -> Result<Side> {
    let side = Side::new(end, &Options::default())?;
    side.to_init()?;
    Ok(side)
}

/// Starts to listen. Also returns the address to connect to.
fn listen(end: &End) -> Result<(Listening, SocketAddrV4)> {
    let listening = end.agent.listen()?;
    let at = end.cm.context("no address")?;
    Ok((listening, SocketAddrV4::new(at, listening.port)))
}

/// Returns private data that no other end sends.
fn data(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

/// Both programs get the private data of the other program.
fn accepted((from, to): (&End, &End)) -> Result<()> {
    for len in LENGTHS {
        let (near, far) = (side(from)?, side(to)?);
        let (request, reply) = (data(len, 1), data(len, 2));
        let (listening, at) = listen(to)?;
        let connection = from.agent.begin_to_connect(at, near.managed(&request))?;
        let accepted = to.agent.accept(listening.listener, far.managed(&reply))?;
        let got = from.agent.established(connection)?;
        expect("request", &accepted.private, &request)?;
        expect("reply", &got, &reply)?;
        near.prove_towards(&far)?;
    }
    Ok(())
}

/// A program that rejects a request sends private data to its peer.
fn rejected((from, to): (&End, &End)) -> Result<()> {
    for len in LENGTHS {
        let near = side(from)?;
        let (request, reason) = (data(len, 3), data(len, 4));
        let (listening, at) = listen(to)?;
        let connection = from.agent.begin_to_connect(at, near.managed(&request))?;
        let asked = to.agent.reject(listening.listener, reason.clone())?;
        let got = from.agent.rejected(connection)?;
        expect("request", &asked, &request)?;
        expect("rejection", &got, &reason)?;
    }
    Ok(())
}

/// Both programs get an event at the end of a connection, which flushes the receives of both.
fn closed((from, to): (&End, &End)) -> Result<()> {
    let (near, far) = (side(from)?, side(to)?);
    let (listening, at) = listen(to)?;
    let connection = from.agent.begin_to_connect(at, near.managed(&[]))?;
    let accepted = to.agent.accept(listening.listener, far.managed(&[]))?;
    from.agent.established(connection)?;
    near.prove_towards(&far)?;
    near.post_recv(1, &[])?;
    far.post_recv(2, &[])?;
    from.agent.disconnect(connection)?;
    to.agent.disconnected(accepted.connection)?;
    from.agent.disconnected(connection)?;
    near.expect_received(1, Status::WrFlushErr)?;
    far.expect_received(2, Status::WrFlushErr)?;
    near.becomes(State::Err)?;
    far.becomes(State::Err)
}

fn expect(what: &str, found: &[u8], sent: &[u8]) -> Result<()> {
    ensure!(found == sent, "private data of the {what}: {found:?}, not {sent:?}");
    Ok(())
}
