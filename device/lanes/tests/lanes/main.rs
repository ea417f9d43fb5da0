//! Tests of the lanes of a port, and of two ports that pause each other.
//!
//! | module | what it shows |
//! | --- | --- |
//! | `turns` | strict classes, shares, rates |
//! | `bounds` | memory, marks, drops |
//! | `deadlock` | two switches that pause each other |
//! | `lossless` | pauses, and what is never lost |

mod bounds;
mod deadlock;
mod lossless;
mod turns;

use vrnic_lanes::{Class, ClassConfig, Config, Frame, Lanes, Mark, PerClass, Service};
use vrnic_packet::{MacAddr, Nanos};

/// The address of all ports.
const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// A frame that knows only its length and number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plain {
    bytes: u32,
    number: u64,
    marked: bool,
}

impl Frame for Plain {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn mark(&mut self) -> Mark {
        if std::mem::replace(&mut self.marked, true) { Mark::Kept } else { Mark::Set }
    }
}

fn plain(bytes: u32, number: u64) -> Plain {
    Plain { bytes, number, marked: false }
}

/// Returns a configuration without marks and flow control, in which all classes are strict.
fn strict() -> Config {
    let class = ClassConfig { service: Service::Strict, limit: 1 << 20, ecn: None, pfc: None };
    Config { classes: PerClass::from_fn(|_| class), ..Config::default() }
}

fn class(number: u8) -> Class {
    Class::new(number).expect("a class")
}

fn lanes(config: Config) -> Lanes<Plain> {
    Lanes::new(config, SOURCE).expect("a configuration")
}

fn at(nanos: u64) -> Nanos {
    Nanos(nanos)
}
