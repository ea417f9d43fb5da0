//! Compares a new version of the settings with the running daemon. Functions, ports and uplinks
//! that are missing are added. The log says what else has changed, and how it takes effect.

use vrnic_control_api::{FunctionConfig, LanesConfig, PortConfig, UplinkConfig};

use crate::config::ethernet::Ethernet;
use crate::config::{Config, changed_at_restart};

/// A function, a port or an uplink.
trait Object: Clone + PartialEq {
    /// The kind of object in the commands of `vrnic`.
    const KIND: &'static str;

    fn name(&self) -> &str;
}

impl Object for FunctionConfig {
    const KIND: &'static str = "function";

    fn name(&self) -> &str {
        &self.name
    }
}

impl Object for PortConfig {
    const KIND: &'static str = "port";

    fn name(&self) -> &str {
        &self.name
    }
}

impl Object for UplinkConfig {
    const KIND: &'static str = "uplink";

    fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the objects of the settings `new` that the daemon does not have. Logs the objects that
/// have other settings in `new`, and the objects that the daemon still has although they are only
/// in `old`.
pub(super) fn additions(has: &Ethernet, old: &Ethernet, new: &Ethernet) -> Ethernet {
    log_lanes(&has.lanes, &old.lanes, &new.lanes);
    Ethernet {
        functions: lacking(&has.functions, &old.functions, &new.functions),
        ports: lacking(&has.ports, &old.ports, &new.ports),
        uplinks: lacking(&has.uplinks, &old.uplinks, &new.uplinks),
        lanes: new.lanes.clone(),
        fabric: has.fabric,
    }
}

/// Logs the lanes that the daemon still has although they are only in `old`.
fn log_lanes(has: &[LanesConfig], old: &[LanesConfig], new: &[LanesConfig]) {
    let are_in = |list: &[LanesConfig], port: &str| list.iter().any(|lanes| lanes.port() == port);
    for port in old.iter().map(LanesConfig::port) {
        if are_in(has, port) && !are_in(new, port) {
            tracing::warn!(
                "the lanes of {port} are no longer in the settings, and stay until they are \
                 removed: vrnic lanes clear {port}"
            );
        }
    }
}

/// Returns the object of a list that has the same name.
fn same<'a, T: Object>(list: &'a [T], object: &T) -> Option<&'a T> {
    list.iter().find(|other| other.name() == object.name())
}

fn lacking<T: Object>(has: &[T], old: &[T], new: &[T]) -> Vec<T> {
    for gone in old.iter().filter(|object| same(new, object).is_none()) {
        if same(has, gone).is_some() {
            let (kind, name) = (T::KIND, gone.name());
            tracing::warn!(
                "{kind} {name} is no longer in the settings, and stays until it is removed: vrnic \
                 {kind} remove {name}"
            );
        }
    }
    let mut lacking = Vec::new();
    for object in new {
        match same(has, object) {
            None => lacking.push(object.clone()),
            Some(other) if other != object => {
                let (kind, name) = (T::KIND, object.name());
                tracing::warn!(
                    "{kind} {name} keeps its earlier settings until it is removed and added again"
                );
            }
            Some(_) => {}
        }
    }
    lacking
}

/// Logs the settings that differ from those at the start and take effect when the daemon is started
/// again.
pub(super) fn log_fixed(start: &Config, new: &Config) {
    for setting in changed_at_restart(start, new) {
        tracing::warn!("a change of {setting} takes effect when the daemon is started again");
    }
}
