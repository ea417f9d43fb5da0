//! What clients of the control socket can ask for. There are no ports, uplinks and guests, and the
//! adapters stay as they are.

use std::sync::Arc;

use anyhow::{bail, ensure};
use vrnic_control::capture::recorder::Recorder;
use vrnic_control::reconfig::Answer;
use vrnic_control::{fault_view, timeline};
use vrnic_control_api::request::{Place, Reply, Request};
use vrnic_faults::{Rule, RuleId};

use crate::adapter::driver::Driver;
use crate::adapter::host::ProcessHost;
use crate::adapter::traffic::Traffic;

/// What requests are about.
#[derive(Debug)]
pub struct Requests {
    drivers: Arc<[Driver]>,
    traffic: Arc<Traffic>,
    recorder: Arc<Recorder<ProcessHost>>,
}

impl Requests {
    /// Returns the requests for these adapters.
    #[must_use]
    pub fn new(drivers: &Arc<[Driver]>, traffic: &Arc<Traffic>) -> Self {
        let (drivers, traffic) = (Arc::clone(drivers), Arc::clone(traffic));
        Self { drivers, recorder: Arc::new(traffic.recorder()), traffic }
    }

    /// Carries out a request.
    pub fn handle(&self, request: Request) -> Answer {
        self.answer(request)
            .unwrap_or_else(|error| Answer::Reply(Reply::Refused(format!("{error:#}"))))
    }

    fn answer(&self, request: Request) -> anyhow::Result<Answer> {
        Ok(Answer::Reply(match request {
            Request::ListFaults => Reply::Faults(fault_view::view(self.traffic.gate())),
            Request::AddFault(rule) => Reply::FaultAdded(self.add(&rule)?.get()),
            Request::ClearFaults(rule) => {
                self.traffic.clear(rule.map(RuleId::new))?;
                Reply::Done
            }
            Request::Trace { function, command } => {
                let adapters = self.drivers.iter().map(Driver::adapter);
                timeline::execute(adapters, function.as_deref(), &command)?
            }
            Request::Capture { at, snap_length } => return self.capture(at, snap_length),
            Request::ListUplinks => Reply::Uplinks(Vec::new()),
            Request::ListPorts => Reply::Ports(Vec::new()),
            Request::ListLanes => Reply::Lanes(Vec::new()),
            _ => bail!("this is a `vrnic exec`, whose adapters and network stay as they are"),
        }))
    }

    fn add(&self, text: &str) -> anyhow::Result<RuleId> {
        let rule: Rule = text.parse()?;
        if let Some(name) = &rule.filter.function {
            self.check(name)?;
        }
        self.traffic.add(rule)
    }

    /// Checks that there is an adapter of this name.
    fn check(&self, name: &str) -> anyhow::Result<()> {
        let exists = self.drivers.iter().any(|driver| driver.adapter().name() == name);
        ensure!(exists, "there is no function '{name}'");
        Ok(())
    }

    fn capture(&self, at: Place, snap_length: u32) -> anyhow::Result<Answer> {
        self.recorder.check_room()?;
        let Place::Function(name) = at else { bail!("there are only functions, and no ports") };
        self.check(&name)?;
        let recorder = Arc::clone(&self.recorder);
        Ok(Answer::Stream(Box::new(move |stream| recorder.start(name, snap_length, stream))))
    }
}
