// SPDX-License-Identifier: GPL-2.0
//! The lines, by kind of object.

use abi::{
    admin::{CqRecord, Doing, EqRecord, KeyKind, KeyRecord, NONE, QpRecord, RingRecord, SrqRecord},
    qp::{Access, State, Type},
    uar::{ARM_NEXT, ARM_SOLICITED},
};
use kernel::{
    fmt::{self, Write},
    prelude::*,
    str::Formatter,
};

use super::objects::Line;

/// A number that may be missing.
struct Maybe(u32);

impl fmt::Display for Maybe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NONE => f.write_str("-"),
            number => number.fmt(f),
        }
    }
}

/// Writes a queue's indices and what they mean.
fn ring(f: &mut Formatter<'_>, name: &str, ring: &RingRecord) -> fmt::Result {
    let (size, posted, next) = (ring.size.get(), ring.posted.get(), ring.next.get());
    if size == 0 {
        return Ok(());
    }
    let waiting = posted.wrapping_sub(next);
    f.write_fmt(fmt!(" {name}_size {size} {name}_producer {posted} {name}_consumer {next}"))?;
    let credits = size.wrapping_sub(waiting);
    f.write_fmt(fmt!(" {name}_waiting {waiting} {name}_credits {credits}"))
}

impl Line for QpRecord {
    fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match Type::from_raw(self.kind) {
            Some(Type::Gsi) => "GSI",
            Some(Type::Rc) => "RC",
            Some(Type::Uc) => "UC",
            Some(Type::Ud) => "UD",
            Some(Type::XrcIni) => "XRC_INI",
            Some(Type::XrcTgt) => "XRC_TGT",
            None => "?",
        };
        let state = match State::from_raw(self.state) {
            Some(State::Reset) => "RESET",
            Some(State::Init) => "INIT",
            Some(State::Rtr) => "RTR",
            Some(State::Rts) => "RTS",
            Some(State::Sqd) => "SQD",
            Some(State::Sqe) => "SQE",
            Some(State::Err) => "ERR",
            None => "?",
        };
        f.write_fmt(fmt!("qp {} type {kind} state {state}", self.qpn.get()))?;
        f.write_fmt(fmt!(" context {} pd {}", self.context.get(), self.pdn.get()))?;
        f.write_fmt(fmt!(" send_cq {} recv_cq {}", self.send_cqn.get(), self.recv_cqn.get()))?;
        f.write_fmt(fmt!(" srq {} peer {}", Maybe(self.srqn.get()), Maybe(self.dest_qpn.get())))?;
        let [a, b, c, d, e, g] = self.dmac;
        f.write_fmt(fmt!(" at {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"))?;
        f.write_fmt(fmt!(" path_mtu {}", self.path_mtu))?;
        f.write_fmt(fmt!(
            " uar {} slot {} worker {}",
            self.uar.get(),
            self.slot.get(),
            self.worker.get()
        ))?;
        f.write_fmt(fmt!(
            " sq_memory {}",
            ["guest", "device"][usize::from(self.sq_in_device != 0)]
        ))?;
        ring(f, "sq", &self.sq)?;
        ring(f, "rq", &self.rq)?;
        let doing = Doing::from_raw(self.doing);
        let name = match doing {
            Some(Doing::Nothing) => "nothing",
            Some(Doing::Working) => "working",
            Some(Doing::Waiting) => "waiting",
            Some(Doing::Busy) | None => "busy",
        };
        f.write_fmt(fmt!(" requester {name}"))?;
        if matches!(doing, Some(Doing::Working | Doing::Waiting)) {
            let (wr_id, done) = (self.wr_id.get(), self.done.get());
            f.write_fmt(fmt!(" wr_id {wr_id:#x} moved {done} retries {}", self.retries))?;
            f.write_fmt(fmt!(" rnr_retries {}", self.rnr_retries))?;
        }
        f.write_fmt(fmt!(" receiving {}\n", self.receiving))
    }
}

impl Line for CqRecord {
    fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (produced, consumed) = (self.produced.get(), self.consumed.get());
        let armed = match self.armed.get() {
            ARM_NEXT => "next",
            ARM_SOLICITED => "solicited",
            _ => "no",
        };
        f.write_fmt(fmt!(
            "cq {} context {} eq {}",
            self.cqn.get(),
            self.context.get(),
            self.eqn.get()
        ))?;
        f.write_fmt(fmt!(
            " users {} uar {} slot {}",
            self.users.get(),
            self.uar.get(),
            self.slot.get()
        ))?;
        let waiting = produced.wrapping_sub(consumed);
        let size = self.size.get();
        f.write_fmt(fmt!(
            " size {size} producer {produced} consumer {consumed} waiting {waiting} credits {}",
            size.wrapping_sub(waiting)
        ))?;
        f.write_fmt(fmt!(" armed {armed} failed {}\n", self.failed.get()))
    }
}

impl Line for EqRecord {
    fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (produced, consumed) = (self.produced.get(), self.consumed.get());
        f.write_fmt(fmt!(
            "eq {} vector {} cqs {}",
            self.eqn.get(),
            self.vector.get(),
            self.cqs.get()
        ))?;
        let waiting = produced.wrapping_sub(consumed);
        f.write_fmt(fmt!(
            " size {} producer {produced} consumer {consumed} waiting {waiting}\n",
            self.size.get()
        ))
    }
}

impl Line for SrqRecord {
    fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_fmt(fmt!(
            "srq {} context {} pd {}",
            self.srqn.get(),
            self.context.get(),
            self.pdn.get()
        ))?;
        f.write_fmt(fmt!(" xrcd {} users {}", Maybe(self.xrcdn.get()), self.users.get()))?;
        f.write_fmt(fmt!(" uar {} slot {}", self.uar.get(), self.slot.get()))?;
        ring(f, "rq", &self.ring)?;
        f.write_fmt(fmt!(" limit {} failed {}\n", self.limit.get(), self.failed.get()))
    }
}

impl Line for KeyRecord {
    fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_fmt(fmt!(
            "key {:#010x} type {} pd {}",
            self.key.get(),
            key_kind(self.kind),
            self.pdn.get()
        ))?;
        if self.valid == 0 {
            f.write_str(" state free")?;
        } else {
            f.write_fmt(fmt!(" state valid qp {} access", Maybe(self.qpn.get())))?;
            f.write_str(" local_read")?;
            for (name, _) in Access::from_bits_truncate(self.access.get()).iter_names() {
                f.write_str(",")?;
                name.bytes().try_for_each(|byte| f.write_char(byte.to_ascii_lowercase().into()))?;
            }
            f.write_fmt(fmt!(" base {:#x} length {}", self.base.get(), self.length.get()))?;
            match self.page_shift {
                0 => f.write_str(" page_size -")?,
                shift => f.write_fmt(fmt!(" page_size {}", 1u64 << shift.min(63)))?,
            }
        }
        f.write_fmt(fmt!(" windows {} one_touch {}\n", self.windows.get(), self.one_touch))
    }
}

/// Returns the name of a kind of key.
fn key_kind(raw: u8) -> &'static str {
    match KeyKind::from_raw(raw) {
        Some(KeyKind::Region) => "region",
        Some(KeyKind::Fast) => "fast_region",
        Some(KeyKind::Window1) => "window1",
        Some(KeyKind::Window2) => "window2",
        Some(KeyKind::Command) => "command",
        Some(KeyKind::Leaving) => "leaving",
        None => "?",
    }
}
