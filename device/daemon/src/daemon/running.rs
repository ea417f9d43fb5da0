//! Changes to the running daemon: functions, ports, uplinks and faults.

use std::sync::Arc;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use vrnic_control::capture::recorder::Recorder;
use vrnic_control::reconfig::Answer;
use vrnic_control::timeline;
use vrnic_control_api::request::{Place, Reply, Request};
use vrnic_control_api::share::{Claim, shares};
use vrnic_control_api::uplink::Way;
use vrnic_control_api::{FunctionCeilings, FunctionConfig, LanesConfig, PortConfig, UplinkConfig};
use vrnic_faults::Rule;

use super::functions::{Function, Maker};
use super::{ports, reload};
use crate::config::ethernet::Ethernet;
use crate::faults::Faults;
use crate::host::vfio_host::VfioHost;

fn refused(error: anyhow::Error) -> Reply {
    Reply::Refused(format!("{error:#}"))
}

/// The functions, ports and uplinks.
pub(super) struct Running {
    pub(super) maker: Maker,
    pub(super) state: Mutex<State>,
    /// Held during a change: by the thread of the control socket, or by a reload.
    pub(super) changing: Mutex<()>,
    faults: Arc<Faults>,
    recorder: Arc<Recorder<VfioHost>>,
}

/// The present objects.
pub(super) struct State {
    /// The settings of all of them.
    pub(super) ethernet: Ethernet,
    pub(super) functions: Vec<Function>,
}

impl Running {
    /// Creates all objects that `ethernet` describes.
    ///
    /// # Errors
    /// Returns an error if a socket or an interface cannot be used, or if the system lacks a
    /// resource.
    pub(super) fn start(
        maker: Maker,
        ethernet: &Ethernet,
        faults: Arc<Faults>,
    ) -> anyhow::Result<Self> {
        let recorder = Arc::new(Recorder::new(&maker.fabric, maker.switch.captures()));
        let made = ethernet.functions.iter().map(|settings| maker.make(settings));
        let functions = made.collect::<anyhow::Result<_>>()?;
        for settings in &ethernet.ports {
            maker.switch.add(ports::guest(settings, &maker.access)?)?;
        }
        for settings in &ethernet.uplinks {
            maker.switch.add(ports::uplink(settings, &maker.access)?)?;
        }
        maker.fabric.use_switch(!ethernet.lanes.is_empty());
        for settings in &ethernet.lanes {
            maker.switch.set_lanes(settings.port(), Some(settings.clone()))?;
        }
        let state = State { ethernet: ethernet.clone(), functions };
        let (state, changing) = (Mutex::new(state), Mutex::default());
        let this = Self { maker, state, changing, faults, recorder };
        this.divide();
        Ok(this)
    }

    /// Logs that the functions are ready.
    pub(super) fn announce(&self) {
        self.state.lock().functions.iter().for_each(Function::announce);
    }

    /// Returns the number of functions.
    pub(super) fn functions(&self) -> usize {
        self.state.lock().functions.len()
    }

    /// Closes the sockets at which VMMs can connect.
    pub(super) fn close(&self) {
        self.state.lock().functions.clear();
    }

    /// Carries out a request.
    pub(super) fn handle(&self, request: Request) -> Answer {
        match request {
            Request::Capture { at, snap_length } => {
                self.capture(at, snap_length).unwrap_or_else(|error| Answer::Reply(refused(error)))
            }
            other => Answer::Reply(self.reply(other)),
        }
    }

    /// Returns the function that sends a capture to a client.
    fn capture(&self, at: Place, snap_length: u32) -> anyhow::Result<Answer> {
        self.recorder.check_room()?;
        let state = self.state.lock();
        let Ethernet { functions, ports, uplinks, .. } = &state.ethernet;
        let (kind, name, exists) = match at {
            Place::Function(name) => {
                let exists = functions.iter().any(|function| function.name == name);
                ("function", name, exists)
            }
            Place::Port(name) => {
                let exists = ports.iter().any(|port| port.name == name);
                ("port", name, exists)
            }
            Place::Uplink(name) => {
                let exists = uplinks.iter().any(|uplink| uplink.name == name);
                ("uplink", name, exists)
            }
        };
        if !exists {
            bail!("there is no {kind} '{name}'");
        }
        let recorder = Arc::clone(&self.recorder);
        Ok(Answer::Stream(Box::new(move |stream| recorder.start(name, snap_length, stream))))
    }

    /// Adds the functions, ports and uplinks that are in the settings `new` and not in the daemon.
    /// Logs those that cannot be added, and all other differences from `old`.
    pub(super) fn reload(&self, old: &Ethernet, new: &Ethernet) {
        let _no_other_change = self.changing.lock();
        let has = self.state.lock().ethernet.clone();
        let Ethernet { functions, ports, uplinks, lanes, .. } = reload::additions(&has, old, new);
        let log = |kind: &str, name: String, added: anyhow::Result<()>| match added {
            Ok(()) => tracing::info!("{kind} {name} was added"),
            Err(error) => tracing::error!("{kind} {name} cannot be added: {error:#}"),
        };
        for settings in functions {
            log("function", settings.name.clone(), self.add_function(settings));
        }
        for settings in ports {
            log("port", settings.name.clone(), self.add_port(settings));
        }
        for settings in uplinks {
            log("uplink", settings.name.clone(), self.add_uplink(settings));
        }
        for settings in lanes.into_iter().filter(|lanes| !has.lanes.contains(lanes)) {
            log("lanes of", settings.port().to_owned(), self.set_lanes(settings));
        }
    }

    fn reply(&self, request: Request) -> Reply {
        let _no_other_change = self.changing.lock();
        let done = match request {
            Request::Capture { .. } => return Reply::Done,
            Request::ListUplinks => {
                return Reply::Uplinks(self.state.lock().ethernet.uplinks.clone());
            }
            Request::ListPorts => return Reply::Ports(self.state.lock().ethernet.ports.clone()),
            Request::ListLanes => return Reply::Lanes(self.state.lock().ethernet.lanes.clone()),
            Request::ListFunctions => {
                return Reply::Functions(self.state.lock().ethernet.functions.clone());
            }
            Request::ListFaults => return Reply::Faults(self.faults.view()),
            Request::AddFault(rule) => {
                let added = self.add_fault(&rule);
                return added.map_or_else(refused, Reply::FaultAdded);
            }
            Request::ClearFaults(rule) => self.faults.clear(rule),
            Request::Trace { function, command } => {
                let state = self.state.lock();
                let adapters = state.functions.iter().map(|it| it.hosted().adapter());
                return timeline::execute(adapters, function.as_deref(), &command)
                    .unwrap_or_else(refused);
            }
            Request::AddUplink(settings) => self.add_uplink(settings),
            Request::RemoveUplink(name) => self.remove_uplink(&name),
            Request::AddPort(settings) => self.add_port(settings),
            Request::RemovePort(name) => self.remove_port(&name),
            Request::AddFunction(settings) => self.add_function(settings),
            Request::SetLanes(settings) => self.set_lanes(settings),
            Request::ClearLanes(name) => self.clear_lanes(&name),
            Request::Assign(assign) => self.assign(&assign),
            Request::RemoveFunction { name, force } => self.remove_function(&name, force),
            Request::LimitFunction { name, ceilings } => self.limit(&name, ceilings),
            Request::ShareFunction { name, claim } => self.share(&name, claim),
        };
        done.map_or_else(refused, |()| Reply::Done)
    }

    /// Adds a rule for faults. Returns its number.
    fn add_fault(&self, text: &str) -> anyhow::Result<u32> {
        let rule: Rule = text.parse()?;
        if let Some(name) = &rule.filter.function
            && !self.state.lock().ethernet.functions.iter().any(|function| function.name == *name)
        {
            bail!("there is no function '{name}'");
        }
        Ok(self.faults.add(rule)?.get())
    }

    fn add_uplink(&self, settings: UplinkConfig) -> anyhow::Result<()> {
        if matches!(settings.way, Way::Descriptor(_)) {
            bail!("a descriptor can only be given when the daemon starts");
        }
        self.change(
            |ethernet| ethernet.uplinks.push(settings.clone()),
            |maker| Ok(maker.switch.add(ports::uplink(&settings, &maker.access)?)?),
        )
    }

    fn add_port(&self, settings: PortConfig) -> anyhow::Result<()> {
        self.change(
            |ethernet| ethernet.ports.push(settings.clone()),
            |maker| Ok(maker.switch.add(ports::guest(&settings, &maker.access)?)?),
        )
    }

    /// Changes the ceilings of a function.
    fn limit(&self, name: &str, ceilings: FunctionCeilings) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        let State { ethernet, functions } = &mut *state;
        let settings = ethernet.functions.iter_mut().find(|settings| settings.name == name);
        let function = functions.iter_mut().find(|function| function.name() == name);
        let Some((settings, function)) = settings.zip(function) else {
            bail!("there is no function '{name}'");
        };
        settings.limit(ceilings);
        function.limit(settings);
        Ok(())
    }

    /// Changes the share of a function in the workers' time.
    fn share(&self, name: &str, claim: Claim) -> anyhow::Result<()> {
        if !self.state.lock().ethernet.functions.iter().any(|settings| settings.name == name) {
            bail!("there is no function '{name}'");
        }
        let named = |settings: &&mut FunctionConfig| settings.name == name;
        self.change(
            |ethernet| {
                ethernet
                    .functions
                    .iter_mut()
                    .filter(named)
                    .for_each(|found| (found.weight, found.floor) = (claim.weight, claim.floor));
            },
            |_| Ok(()),
        )?;
        self.divide();
        Ok(())
    }

    /// Divides the time of the workers, and busy uplinks, among the present functions.
    fn divide(&self) {
        let State { ethernet, functions } = &*self.state.lock();
        let claims: Vec<_> = ethernet.functions.iter().map(FunctionConfig::claim).collect();
        let shares = shares(&claims);
        let most = shares.iter().copied().max().unwrap_or_default();
        for (settings, share) in ethernet.functions.iter().zip(shares) {
            self.maker.switch.outbox().share(settings.mac, share, most);
            let named = |function: &&Function| function.name() == settings.name;
            if let Some(function) = functions.iter().find(named) {
                function.hosted().set_share(share);
            }
        }
        self.maker.engines.iter().for_each(|engines| engines.renew());
    }

    /// Changes the settings, if the changed settings are valid and `make` succeeds.
    fn change(
        &self,
        settings: impl FnOnce(&mut Ethernet),
        make: impl FnOnce(&Maker) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        let mut ethernet = state.ethernet.clone();
        settings(&mut ethernet);
        ethernet.check()?;
        make(&self.maker)?;
        state.ethernet = ethernet;
        Ok(())
    }

    /// Sets the lanes of a port, in place of those that it may have.
    fn set_lanes(&self, settings: LanesConfig) -> anyhow::Result<()> {
        self.change(
            |ethernet| {
                ethernet.lanes.retain(|lanes| lanes.port() != settings.port());
                ethernet.lanes.push(settings.clone());
            },
            |maker| {
                maker.switch.set_lanes(settings.port(), Some(settings.clone()))?;
                maker.fabric.use_switch(true);
                Ok(())
            },
        )
    }

    fn clear_lanes(&self, name: &str) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        let lanes = &mut state.ethernet.lanes;
        let at = lanes.iter().position(|lanes| lanes.port() == name);
        let at = at.with_context(|| format!("port '{name}' has no lanes"))?;
        self.maker.switch.set_lanes(name, None)?;
        lanes.remove(at);
        self.maker.fabric.use_switch(!lanes.is_empty());
        Ok(())
    }

    /// Forgets the lanes of a port that has been removed.
    fn forget_lanes(&self, state: &mut State, name: &str) {
        let lanes = &mut state.ethernet.lanes;
        if let Some(at) = lanes.iter().position(|lanes| lanes.port() == name) {
            lanes.remove(at);
            self.maker.fabric.use_switch(!lanes.is_empty());
            if let Err(error) = self.maker.switch.set_lanes(name, None) {
                tracing::error!(port = name, %error, "the lanes of a port cannot be removed");
            }
        }
    }

    fn remove_uplink(&self, name: &str) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        let uplinks = &mut state.ethernet.uplinks;
        let at = uplinks.iter().position(|uplink| uplink.name == name);
        let at = at.with_context(|| format!("there is no uplink '{name}'"))?;
        self.maker.switch.remove(name)?;
        uplinks.remove(at);
        self.forget_lanes(&mut state, name);
        Ok(())
    }

    fn remove_port(&self, name: &str) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        let ports = &mut state.ethernet.ports;
        let at = ports.iter().position(|port| port.name == name);
        let at = at.with_context(|| format!("there is no port '{name}'"))?;
        self.maker.switch.remove(name)?;
        ports.remove(at);
        self.forget_lanes(&mut state, name);
        Ok(())
    }

    fn add_function(&self, settings: FunctionConfig) -> anyhow::Result<()> {
        let mut made = None;
        self.change(
            |ethernet| ethernet.functions.push(settings.clone()),
            |maker| {
                made = Some(maker.make(&settings)?);
                Ok(())
            },
        )?;
        if let Some(function) = made {
            function.announce();
            self.state.lock().functions.push(function);
            self.divide();
        }
        Ok(())
    }

    fn remove_function(&self, name: &str, force: bool) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        let at = state.functions.iter().position(|function| function.name() == name);
        let at = at.with_context(|| format!("there is no function '{name}'"))?;
        if !force && state.functions.get(at).is_some_and(Function::is_busy) {
            bail!("a VMM is connected to function '{name}'; --force disconnects it");
        }
        let function = state.functions.remove(at);
        state.ethernet.functions.retain(|settings| settings.name != name);
        self.forget_lanes(&mut state, name);
        self.maker.end(function);
        drop(state);
        self.divide();
        Ok(())
    }
}
