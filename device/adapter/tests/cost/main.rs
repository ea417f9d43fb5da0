//! A poll without work, and a poll with one work request, take few instructions. A tracer counts
//! them one by one, so that the numbers do not depend on the load of the machine.
//!
//! Shows: cost
//!
//! | module | what it holds |
//! | --- | --- |
//! | `host` | a host of tests that costs little itself |
//! | `bus` | the test driver's bus to an adapter in this process |
//! | `tracer` | counts the instructions of another process |
#![cfg(target_arch = "x86_64")]
#![forbid(unsafe_code)]

#[expect(dead_code, reason = "this test needs a part of it")]
#[path = "../adapter/bus.rs"]
mod bus;
mod host;
mod tracer;

use std::sync::Arc;

use vrnic_abi::sq::Opcode;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest, InProcess};
use crate::host::TestHost;

/// Set in the process whose instructions are counted.
const TRACED: &str = "VRNIC_TRACED";
/// Number of polls before the first that is counted, and of those that are counted.
const WARM_UP: u32 = 100;
const COUNTED: usize = 2;

/// A poll of the sender's adapter.
struct Work {
    name: &'static str,
    /// The work request that it finds, if any, and its length.
    request: Option<(Opcode, u32)>,
    /// The maximum number of instructions, in optimized programs and in those of the profile `dev`.
    bounds: [u64; 2],
}

const WORK: [Work; 5] = [
    Work { name: "no work", request: None, bounds: [335, 3_600] },
    Work { name: "WRITE of 8 bytes", request: Some((Opcode::Write, 8)), bounds: [4_700, 46_000] },
    Work { name: "WRITE of 64 bytes", request: Some((Opcode::Write, 64)), bounds: [5_030, 52_000] },
    Work { name: "READ of 64 bytes", request: Some((Opcode::Read, 64)), bounds: [4_980, 52_000] },
    Work { name: "SEND of 64 bytes", request: Some((Opcode::Send, 64)), bounds: [7_420, 91_000] },
];

/// Two adapters, and a connected endpoint on each.
struct Pair {
    guests: [Guest; 2],
    a: Endpoint,
    b: Endpoint,
}

impl Pair {
    fn new() -> Self {
        let fabric: Arc<Fabric<TestHost>> = Arc::default();
        let guest = |n| InProcess::guest(TestHost::new(), n, &fabric, 1, Limits::default());
        let guests = [guest(1), guest(2)];
        let setup = Setup { region: 1 << 20, log_stride: 7, ..Setup::default() };
        let [a, b] = guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        Endpoint::connect_pair(&a, &b);
        Self { guests, a, b }
    }

    /// Posts this work request, if any, and passes a poll of the sender's adapter to `counted`.
    fn round(&mut self, request: Option<(Opcode, u32)>, counted: impl FnOnce(&dyn Fn())) {
        let Self { guests: [first, second], a, b } = self;
        if let Some((opcode, len)) = request {
            if opcode == Opcode::Send {
                b.post_recv(1, &[b.sge(4096, 4096)]);
            }
            a.post_send(&Wr::new(opcode, &[a.sge(0, len)]).to(b.buffer, b.key));
        }
        counted(&|| _ = first.adapter.poll(0));
        if let Some((opcode, _)) = request {
            a.send_cq.poll_success();
            if opcode == Opcode::Send {
                b.recv_cq.poll_success();
            }
        }
        while first.adapter.poll(0).busy | second.adapter.poll(0).busy {}
    }
}

#[test]
fn a_work_request_takes_few_instructions() {
    if std::env::var_os(TRACED).is_some() {
        return run_traced();
    }
    let counts = tracer::count("a_work_request_takes_few_instructions", TRACED);
    let (calls, counts) = counts.split_at(COUNTED);
    let overhead = calls.iter().min().expect("empty parts");
    assert_eq!(counts.len(), COUNTED * WORK.len());
    let mut above = Vec::<&str>::new();
    for (Work { name, bounds, .. }, counts) in WORK.iter().zip(counts.chunks(COUNTED)) {
        let count = counts.iter().min().expect("counts") - overhead;
        let bound = bounds[usize::from(cfg!(debug_assertions))];
        println!("{name}: {count} instructions, of {bound}");
        if count > bound {
            above.push(name);
        }
    }
    let above = above.join(", ");
    assert!(
        above.is_empty(),
        "{above}: too many instructions; if they are worth it, raise the bound"
    );
}

/// Does the work, under a tracer.
fn run_traced() {
    tracer::allow();
    for _ in 0..COUNTED {
        tracer::counted(|| {});
    }
    let mut pair = Pair::new();
    for Work { request, .. } in WORK {
        for _ in 0..WARM_UP {
            pair.round(request, |poll| poll());
        }
        for _ in 0..COUNTED {
            pair.round(request, |poll| tracer::counted(poll));
        }
    }
}
