//! The agents of a case.

use anyhow::{Context, Result, ensure};

use crate::model::DeviceInfo;
use crate::rpc::client::{Agent, Place};
use crate::rpc::process::Start;

/// Settings of the two ends, from the command line.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Places of the agents of ends a and b.
    pub(crate) places: [Place; 2],
    /// Name of the device at both ends; `None` for the only one.
    pub(crate) device: Option<String>,
    /// Settings of agents.
    pub(crate) start: Start,
}

/// An end: an agent and its device.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) agent: Agent,
    pub(crate) info: DeviceInfo,
}

/// Two ends.
pub(crate) struct Env {
    pub(crate) a: End,
    pub(crate) b: End,
    setup: Setup,
}

impl Env {
    /// Starts an agent at either end.
    pub(crate) fn new(setup: &Setup) -> Result<Self> {
        let a = start("a", setup, 0)?;
        let b = start("b", setup, 1)?;
        Ok(Self { a, b, setup: setup.clone() })
    }

    /// One more process where a runs.
    pub(crate) fn another_a(&self) -> Result<End> {
        start("another a", &self.setup, 0)
    }

    /// One more process where b runs.
    pub(crate) fn another_b(&self) -> Result<End> {
        start("another b", &self.setup, 1)
    }

    /// Ends a case: nothing outside the buffers was written to, and everything can be destroyed.
    pub(crate) fn finish(&self) -> Result<()> {
        for end in [&self.a, &self.b] {
            end.agent.check_canaries()?;
        }
        self.reset()
    }

    /// Destroys everything at both ends.
    pub(crate) fn reset(&self) -> Result<()> {
        for end in [&self.a, &self.b] {
            end.agent.reset()?;
        }
        Ok(())
    }
}

fn start(name: &'static str, setup: &Setup, place: usize) -> Result<End> {
    let place = &setup.places[place];
    let agent = Agent::start(name, place, &setup.start)
        .with_context(|| format!("starting agent {name} at {place:?}"))?;
    let info = agent.open(setup.device.clone())?;
    ensure!(info.port_active, "{name}: the port of {} is not active", info.name);
    Ok(End { agent, info })
}
