//! What is run.

use std::time::Duration;

use vrnic_lanes::config::CERTAIN;
use vrnic_lanes::{Class, ClassConfig, Config, PerClass, Red, Service, Thresholds};
use vrnic_packet::Rate;
use vrnic_roce::congestion::Parameters;

/// The class of the flows that compete with RoCE, and have no flow control.
pub const OTHER: Class = Class::of_bits(1);

/// A network and its load: `senders` hosts write to memory of one receiver through one switch, as
/// fast as they can.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of hosts that send by RoCE in class 3.
    pub senders: usize,
    /// True if each sender also sends in class 1, to a second receiver. This shows whether a paused
    /// class disturbs others.
    pub bystanders: bool,
    /// The rate of all links.
    pub link: Rate,
    /// The time that a frame takes from one end of a wire to the other.
    pub latency: Duration,
    /// The duration of the run.
    pub span: Duration,
    /// The congestion control of the senders, if there is one.
    pub dcqcn: Option<Parameters>,
    /// True if class 3 has a flow control of its own (PFC).
    pub pfc: bool,
    /// The rate at which the receiver takes packets of class 3, if that is less than its link's.
    pub slow_receiver: Option<Rate>,
    /// Maximum number of outstanding packets of a connection.
    pub window: u32,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Scenario {
    /// Returns the incast of `senders` hosts at links of 40 Gbit/s, as in the DCQCN paper, without
    /// congestion control and flow control.
    #[must_use]
    pub fn incast(senders: usize) -> Self {
        Self {
            senders,
            bystanders: false,
            link: Rate::nearest(40_000_000_000),
            latency: Duration::from_micros(1),
            span: Duration::from_millis(60),
            dcqcn: None,
            pfc: false,
            slow_receiver: None,
            window: 128,
            seed: 1,
        }
    }

    /// Returns the scenario with DCQCN, as in the paper.
    #[must_use]
    pub fn with_dcqcn(self) -> Self {
        let dcqcn = Some(Parameters::of_paper(self.link));
        Self { dcqcn, ..self }
    }

    /// Returns the scenario with PFC.
    #[must_use]
    pub fn with_pfc(self) -> Self {
        Self { pfc: true, ..self }
    }

    /// Returns the configuration of all ports. Marks begin at 5 KB and end at 200 KB, as in the
    /// DCQCN paper (figure 14).
    #[must_use]
    pub fn ports(&self, seed: u64) -> Config {
        let class = |class: Class| {
            let roce = class == Class::ROCE;
            ClassConfig {
                service: match class.number() {
                    6 | 7 => Service::Strict,
                    3 => Service::Share(50),
                    _ => Service::Share(10),
                },
                // With flow control, the queue has room for all that the senders may have in the
                // switch before it pauses them.
                limit: if roce && self.pfc { 4 << 20 } else { 512 << 10 },
                ecn: roce.then_some(Red { min: 5_000, max: 200_000, probability: CERTAIN / 100 }),
                pfc: Some(Thresholds { xoff: XOFF, xon: XON, headroom: 128 << 10 })
                    .filter(|_| roce && self.pfc),
            }
        };
        Config {
            rate: Some(self.link),
            burst: 0,
            link: self.link,
            classes: PerClass::from_fn(class),
            seed: self.seed ^ seed,
            ..Config::default()
        }
    }
}

/// The bytes of a sender in the switch above which the sender is paused.
pub const XOFF: u32 = 96 << 10;
/// The bytes at which it goes on.
pub const XON: u32 = 64 << 10;
