//! Names of the figures that are measured without guests.
//!
//! A [`Figure`] is a subject and a quantity. `vrnic-bench` measures it, and writes its text into
//! tables and JSON; `vrnic-compare` parses the text. Each text stands here only, in a table that
//! both directions derive from. For example, the text "65536 B Write, packets, trunk, GB/s" is
//! `Figure(Subject::Messages(65536, Operation::Write, Way::Packets(Link::Trunk)),
//! Quantity::Gigabytes)`. The module [`svg`] draws charts.
#![forbid(unsafe_code)]

pub mod svg;

use parse_display::{Display, FromStr, ParseError};
use serde::{Deserialize, Serialize};

/// Defines enums whose variants have texts with a place for each field.
macro_rules! texts {
    ($(
        $(#[$attribute:meta])*
        $name:ident { $($variant:ident $(($($field:ty),*))? $text:literal,)* }
    )*) => {
        $(
            $(#[$attribute])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, FromStr)]
            pub enum $name {
                $(#[doc = concat!("\"", $text, "\"")] #[display($text)] $variant $(($($field),*))?,)*
            }

            #[cfg(test)]
            impl tests::Any for $name {
                fn any(random: &mut fastrand::Rng) -> Self {
                    let variants: &[fn(&mut fastrand::Rng) -> Self] =
                        &[$(|_random| Self::$variant $(($(<$field>::any(_random)),*))?),*];
                    variants[random.usize(..variants.len())](random)
                }
            }
        )*
    };
}

/// A figure: what is measured, and the quantity of it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, FromStr, Serialize, Deserialize,
)]
#[display("{0}{1}")]
#[serde(try_from = "String", into = "String")]
pub struct Figure(pub Subject, #[from_str(regex_infer)] pub Quantity);

impl From<Figure> for String {
    fn from(figure: Figure) -> Self {
        figure.to_string()
    }
}

impl TryFrom<String> for Figure {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

/// The figures that are quoted, with their names among the ratios.
pub const QUOTED: [(&str, Figure); 4] = {
    use {Operation::Write, Quantity::*, Subject::*, Way::QueueInGuest};
    [
        ("native_write64_latency_us", Figure(Latency(QueueInGuest), Median)),
        ("native_write64_mops", Figure(Messages(64, Write, QueueInGuest), Millions)),
        ("native_write64k_vs_memcpy", Figure(Large(64, Write), ToMemcpy)),
        ("native_rate_10000qp_vs_1qp", Figure(RateAmongIdle, ToAlone)),
    ]
};

texts! {
    /// A quantity with its unit, as the end of a figure's text.
    Quantity {
        Count "",
        Millions ", million/s",
        Thousands ", thousand/s",
        Gigabytes ", GB/s",
        WorkerNs ", ns of the worker each",
        Seconds ", s",
        Millis ", ms",
        Micros ", µs",
        Nanos ", ns",
        Median ", median, µs",
        P99 ", p99, µs",
        Max ", max, µs",
        Longest ", longest, µs",
        Bytes ", bytes",
        KiB ", KiB",
        EventsForInterrupt ", events for an interrupt",
        MillionEvents ", million events, none lost",
        MillionCompletions ", million completions",
        ThousandEvents ", thousand events/s",
        ToMemcpy " / memcpy",
        ToPrivateMemcpy " / private memcpy",
        ToSamePages " / memcpy of the same pages",
        ToTwoThreads " / memcpy by two threads",
        ToBeside " / memcpy beside another",
        ToAlone " / alone",
        ToRoce " / RoCE",
        ToIwarp " / iWARP by segments",
        ToTcp " / TCP over veth",
        ToRam " / RAM",
        RateToHonest ", rate / beside honest ones",
        P99ToHonest ", p99 / beside honest ones",
    }

    /// The subject of a figure: the operation or the object that is measured.
    Subject {
        CacheLine(Way) "cache line, round trip of two threads, {0}",
        Latency(Way) "64 B WRITE, doorbell to CQE, {0}",
        Messages(u32, Operation, Way) "{0} B {1}, {2}",

        Large(u32, Operation) "{0} KiB {1}",
        SameBlock(u32, Operation) "{0} KiB memcpy of the same block, {1}",
        PrivateMemory(u32, Operation) "{0} KiB memcpy in private memory, {1}",
        Scattered(u32, Operation) "{0} KiB {1}, scattered pages",
        SamePages(u32, Operation) "{0} KiB memcpy of the same pages, {1}",

        OneQp "64 B Write, 1 QP",
        AmongIdle(u32) "64 B Write among {0} idle QPs",
        RateAmongIdle "64 B Write, rate among idle QPs",
        IdleQp "daemon memory of an idle QP",

        LookUp(u32, Order) "look-up and checks of a segment, {0} regions {1}",
        BindType1 "BIND_MW of a bound window of type 1",
        BindType2 "BIND_MW of type 2, and LOCAL_INV",
        RegMr "REG_MR of 16 pages, and LOCAL_INV",
        Registration(u64, Page) "registration of {0} GiB in pages of {1}",

        BusyQps(usize) "64 B Write over {0} busy QPs",
        Workers(usize) "64 B Write, 2 posting threads, {0} workers",

        Events(u32, u32, u128) "events of {0} CQs on {1} vectors, {2} µs of work each",
        Armed "CQs armed at random",

        Beside(Load) "64 B WRITE beside {0}",
        BesideMany(usize, Load) "64 B WRITE beside {0} functions, {1}",

        LocalRam(Operation) "64 KiB {0}, local end in RAM",
        LocalDevice(Operation) "64 KiB {0}, local end in device memory",
        LocalMessages(u32, Operation) "{0} KiB {1}, local end by messages to the VMM",
        PacketMessages(u32, Operation) "{0} KiB {1} in packets, local end by messages to the VMM",
        PeerMessages(u32, Operation) "{0} KiB {1} in packets, peer's end by messages to the VMM",
        DeviceMemory(Operation) "64 KiB {0}, device memory",
        Mapped(u32) "direct WRITE, mapped, {0} KiB",
        Marked(u32, u32) "direct WRITE, marked, {0} KiB, depth {1}",
        Handed(u32, u32) "direct WRITE, marked, {0} KiB, depth {1}, memcpy by two threads",
        Rung(u32) "direct WRITE, the controller rings the doorbell, {0} KiB",
        Counted(u32) "direct WRITE, counted, 4 KiB in stores of {0} B",
        Memcpy(u32) "memcpy of {0} KiB",
        MemcpyBeside(u32) "memcpy of {0} KiB beside another",

        RawPackets(u32) "raw packets of {0} B",
        SummedPackets(u32) "raw packets of {0} B, checksums computed and checked",
        CutSegments(u32) "SEGMENT of {0} KiB in frames of 9000 B",

        Stream(u32, Link) "TCP stream by queue pairs, sends of {0} KiB, {1}",

        FunctionMemory "daemons' memory of a function with a guest",
        FunctionDescriptors "daemons' descriptors of a function with a guest",
        Connections "connections",
        ActiveConnections "active connections",
        ConnectTime "time to make them",
        EndMemory "daemons' memory of an end of a connection",
        ConnectedMemory "daemons' memory of a connected function",
        ConnectedDescriptors "daemons' descriptors of a connected function",
        IdleProcessors "processors, all connections idle",
        ActiveProcessors "processors, these connections active",
        ActiveWrites "4 KiB WRITEs of the active connections",
        FailedConnections "active connections that have failed",

        IdleConnection(Connection) "daemon memory of an idle connection, {0}",
        AmongConnections(u16, Connection) "rate among {0} idle connections, {1}",
        FirstTakeovers(Connection) "takeover of two ends, first tenth, {0}",
        LastTakeovers(Connection) "takeover of two ends, last tenth, {0}",

        BareFrames "bare frames through TAP and bridge",
        BareSegments "bare joined segments through TAP and bridge",
        Tcp "TCP over veth, MTU 9000",
        LossyTcp "TCP over veth, segments of 4,096 bytes, 1 % loss",
        Seqpacket "UNIX seqpacket, messages of 128 KiB",
        SeqpacketRound "UNIX seqpacket, round trip of two spinning threads",
    }

    /// An operation.
    Operation { Write "Write", Read "Read", Send "Send", }

    /// The way of messages.
    Way {
        QueueInGuest "SQ in guest",
        QueueInDevice "SQ in device",
        OneDaemon(Protocol) "one daemon, {0}",
        Packets(Link) "packets, {0}",
        Iwarp(Link) "iWARP, {0}",
    }

    /// The protocol of two connected QPs of one daemon, which copies their messages.
    Protocol { Roce "RoCE", Iwarp "iWARP", }

    /// The link that packets or segments take.
    Link {
        OneDaemon "one daemon",
        Trunk "trunk",
        LossyTrunk "trunk, 1 % loss",
        JoinedTap "TAP, joined",
        SingleTap "TAP, single",
    }

    /// A connection of iWARP within a daemon.
    Connection { Paired "paired", ByTcp "by TCP", }

    /// The order of look-ups.
    Order { Repeated "over and over", InTurn "in turn", InNoOrder "in no order", }

    /// A size of pages.
    Page { Small "4 KiB", Large "2 MiB", }

    /// Actions of guests next to an honest pair.
    Load {
        Nothing "an idle pair",
        Multicast(u32) "datagrams to {0} members",
        FailingCq(u32) "a failing CQ of {0} QPs",
        Arming(u32) "{0} CQs armed at once",
        Moderated(u32) "{0} moderated events due at once",
        LongMessages(u32) "{0} MiB in 16 segments a message, to fresh memory",
        Flush(u32) "64 queues of {0} requests flushed",
        Frames(u32) "{0} datagrams to an unknown station",
        Writes(u32) "WRITEs of 4 KiB over {0} full queues",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fastrand::Rng;

    use super::*;

    /// Types with random values.
    pub(super) trait Any {
        fn any(random: &mut Rng) -> Self;
    }

    macro_rules! any {
        ($($number:ident)*) => {
            $(impl Any for $number {
                fn any(random: &mut Rng) -> Self {
                    random.$number(..)
                }
            })*
        };
    }
    any!(u16 u32 u64 u128 usize);

    #[test]
    fn each_figure_is_its_text() {
        let mut random = Rng::with_seed(1);
        for _ in 0..2_000 {
            let figure = Figure(Any::any(&mut random), Any::any(&mut random));
            assert_eq!(figure.to_string().parse(), Ok(figure), "{figure}");
        }
        assert_eq!("65536 B Write, packets, GB/s".parse::<Figure>().ok(), None);
    }

    #[test]
    fn the_text_of_a_figure_has_its_parts() {
        let way = Way::Packets(Link::Trunk);
        let figure = Figure(Subject::Messages(65536, Operation::Write, way), Quantity::Gigabytes);
        let text = "65536 B Write, packets, trunk, GB/s";
        assert_eq!(figure.to_string(), text);
        assert_eq!(text.parse(), Ok(figure));
    }

    #[test]
    fn figures_of_a_published_run_are_known() -> serde_json::Result<()> {
        let text = include_str!("../../../docs/benchmarks/figures.json");
        let mut run: serde_json::Value = serde_json::from_str(text)?;
        let figures = run["native"]["figures"].take();
        let figures: BTreeMap<Figure, f64> = serde_json::from_value(figures)?;
        assert!(figures.len() > 100);
        Ok(())
    }
}
