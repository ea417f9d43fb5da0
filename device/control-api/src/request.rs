//! Requests and replies on the control socket: one line of JSON each.

use serde::{Deserialize, Serialize};

use crate::assignment::Assignment;
use crate::faults::FaultsView;
use crate::share::Claim;
use crate::trace::{TraceCommand, TraceView};
use crate::{FunctionCeilings, FunctionConfig, LanesConfig, PortConfig, UplinkConfig};

/// Length of the longest request in bytes.
pub const REQUEST_MAX: usize = 16 << 10;

/// What a client of the control socket asks the daemon to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Adds an uplink with these settings to the switch.
    AddUplink(UplinkConfig),
    /// Removes the uplink of this name.
    RemoveUplink(String),
    /// Returns the uplinks.
    ListUplinks,
    /// Adds a port without a function.
    AddPort(PortConfig),
    /// Removes the port of this name.
    RemovePort(String),
    /// Returns the ports without a function.
    ListPorts,
    /// Sets the lanes of a function, a port or an uplink.
    SetLanes(LanesConfig),
    /// Removes the lanes of the function, port or uplink of this name.
    ClearLanes(String),
    /// Returns the settings of all lanes.
    ListLanes,
    /// Adds a function, the adapter of one guest, with these settings.
    AddFunction(FunctionConfig),
    /// Removes a function.
    RemoveFunction {
        /// The function's name.
        name: String,
        /// True if it is to be removed even if a VMM is connected.
        force: bool,
    },
    /// Changes the ceilings of a function.
    LimitFunction {
        /// The function's name.
        name: String,
        /// The new ceilings of the function.
        ceilings: FunctionCeilings,
    },
    /// Changes the share of a function in the workers' time.
    ShareFunction {
        /// The function's name.
        name: String,
        /// The share.
        claim: Claim,
    },
    /// Changes amounts of resources.
    Assign(Assign),
    /// Returns the functions.
    ListFunctions,
    /// Adds a rule for fault injection, as text.
    AddFault(String),
    /// Removes the rule with this number, or all.
    ClearFaults(Option<u32>),
    /// Returns the rules.
    ListFaults,
    /// Traces a queue pair.
    Trace {
        /// The function of the queue pair; none if the daemon has one function only.
        function: Option<String>,
        /// The operation.
        command: TraceCommand,
    },
    /// Starts a capture, whose data follows the reply until the client closes its half of the
    /// connection.
    Capture {
        /// The port of the switch.
        at: Place,
        /// Maximum number of bytes of each frame that are sent, or 0 for whole frames.
        snap_length: u32,
    },
}

/// A change of amounts of resources. Those that it does not name stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// The function; none for the adapter as a whole.
    pub function: Option<String>,
    /// The new amounts of the resources that change.
    pub amounts: Assignment,
    /// True if an amount may be below what is in use. Nothing more can be created then until less
    /// is in use. Otherwise such a change is refused.
    pub drain: bool,
}

/// A port of the switch, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The port of a function, including the packets that its adapter sends and receives.
    Function(String),
    /// The port of a guest without an adapter.
    Port(String),
    /// The port of an uplink.
    Uplink(String),
}

impl Request {
    /// Returns whether it asks for a change.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::ListUplinks
                | Self::ListPorts
                | Self::ListLanes
                | Self::ListFunctions
                | Self::ListFaults
                | Self::Trace { command: TraceCommand::Take, .. }
        )
    }
}

/// The answer of the daemon to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The settings of all uplinks.
    Uplinks(Vec<UplinkConfig>),
    /// The settings of all ports without a function.
    Ports(Vec<PortConfig>),
    /// The settings of all lanes.
    Lanes(Vec<LanesConfig>),
    /// The settings of all functions.
    Functions(Vec<FunctionConfig>),
    /// The number of the rule that was added.
    FaultAdded(u32),
    /// The rules for faults.
    Faults(FaultsView),
    /// Records of a trace.
    Traced(TraceView),
    /// The request was not carried out, for this reason.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_one_line() {
        let uplink = "name=u,connect=/t".parse().expect("an uplink");
        for request in [
            Request::AddUplink(uplink),
            Request::RemoveFunction { name: "a\n".to_owned(), force: true },
            Request::ListPorts,
        ] {
            let text = serde_json::to_string(&request).expect("text");
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(serde_json::from_str::<Request>(&text).expect("a request"), request);
        }
    }
}
