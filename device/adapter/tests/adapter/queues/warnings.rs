//! Warnings about a guest's queues.
//!
//! Shows: hostile

use std::fmt::{Debug, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::world::Pair;

/// Keeps the messages of warnings, one in each line.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    /// Runs `work`. Returns the warnings of this thread.
    fn of(work: impl FnOnce()) -> String {
        let log = Self::default();
        tracing::subscriber::with_default(log.clone(), work);
        let lines = log.0.lock().expect("no panic");
        lines.clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&mut self.0.lock().expect("no panic")));
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

/// Appends the message of an event.
struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            writeln!(self.0, "{value:?}").expect("strings have room");
        }
    }
}

/// Stores a producer index beyond the send queue and lets the adapters work. Returns the warnings.
fn index_beyond_the_ring(end: &Endpoint, settle: impl FnOnce()) -> String {
    let _earlier = end.guest.drain_events();
    let warnings = Log::of(|| {
        end.guest.slot32(end.uar, end.slot, 0).store(17 + end.sq_pi, Ordering::Release);
        end.guest.ring(end.uar, end.slot);
        settle();
    });
    let failed = (Kind::QpFatal, end.qpn);
    assert!(end.guest.drain_events().contains(&failed), "{:?}", end.kind);
    warnings
}

/// Returns the two ends of a TCP connection between two daemons.
fn stream_ends(cable: &Cable) -> (Endpoint, Endpoint) {
    let end = |guest| Endpoint::new(guest, Setup::default());
    let (a, b) = (end(&cable.ga), end(&cable.gb));
    stream::connect_pair(&a, &b);
    (a, b)
}

#[test]
fn a_faulty_send_queue_is_logged_with_its_reason_on_every_path() {
    let expected = "the send queue has failed: its producer index is beyond the ring\n";

    let p = Pair::local(Setup::default(), |_| {});
    assert_eq!(index_beyond_the_ring(&p.a, || p.settle()), expected, "by memory copies");

    let p = Pair::ud();
    assert_eq!(index_beyond_the_ring(&p.a, || p.settle()), expected, "datagrams");

    let cable = Cable::new(1, Faults::default());
    let fails = |end: &Endpoint| cable.run_until(|| end.state() == State::Err);
    let (a, _b) = cable.connected(Setup::default(), |_| {});
    assert_eq!(index_beyond_the_ring(&a, || fails(&a)), expected, "by packets");
    let (a, _b) = stream_ends(&cable);
    assert_eq!(index_beyond_the_ring(&a, || fails(&a)), expected, "in a TCP connection");
}

#[test]
fn a_malformed_request_has_the_same_status_on_every_path() {
    // An atomic needs a segment for the old value.
    let bad = Wr { wr_id: 9, ..Wr::new(Opcode::FetchAdd, &[]) };
    let p = &mut Pair::local(Setup::default(), |_| {});
    let local = p.complete(&bad);
    assert_eq!((status(&local), p.a.state()), (Status::LocQpOpErr, State::Err));

    let cable = Cable::new(1, Faults::default());
    let (mut a, _b) = cable.connected(Setup::default(), |_| {});
    let by_packets = cable.complete(&mut a, &bad);
    let (mut a, _b) = stream_ends(&cable);
    let by_stream = cable.complete(&mut a, &bad);
    for cqe in [by_packets, by_stream] {
        assert_eq!(
            (status(&cqe), cqe.opcode, cqe.vendor_err.get(), cqe.wr_id.get()),
            (status(&local), local.opcode, local.vendor_err.get(), 9)
        );
    }
}
