//! Objects that are destroyed, or left when the process ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::ffi::{IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPT_XRC_RECV};
use crate::model::manager;
use crate::model::objects::{QueuePair, Queues, SharedQueue};
use crate::model::regions::Region;
use crate::model::requests::Request;
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;
use crate::stack::Place;

/// How the name of the library of the connection manager begins.
const MANAGER: &str = "librdmacm.";

/// A use of a region by an outstanding request.
pub(crate) struct Use {
    text: String,
    place: Place,
    /// True if the request may have been executed.
    is_hint: bool,
}

/// Returns a use of a region by a request that the device may still execute.
pub(crate) fn find_use(tables: &Tables, region: &Arc<Region>) -> Option<Use> {
    if region.users.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut hint = None;
    for pair in tables.pairs.all() {
        if pair.device_address != region.device {
            continue;
        }
        let queues = pair.queues.lock();
        if !queues.is_live() || queues.state == IBV_QPS_INIT {
            continue;
        }
        let name = || pair.name();
        let using = |request: &&Request| request.uses(region);
        let receive = queues.receives.requests.iter().find(using);
        let mut sends = queues.sends.requests.iter();
        let signaled = sends.find(|request| request.is_signaled && request.uses(region));
        if let Some(request) = receive.or(signaled) {
            // The kernel changes the states of iWARP, and after that nothing uses the region.
            if !queues.is_doubtful && !pair.device.is_iwarp {
                return Some(used(&name(), request, false));
            }
            hint = Some(used(&name(), request, true));
        }
        if let Some(request) = queues.sends.requests.iter().find(using) {
            hint = Some(used(&name(), request, true));
        }
    }
    for shared in tables.shared.all() {
        if shared.device_address != region.device || !is_served(tables, &shared) {
            continue;
        }
        let queue = shared.requests.lock();
        let request = queue.requests.iter().find(|request| request.uses(region));
        let Some(request) = request else { continue };
        if !shared.is_doubtful.load(Ordering::Relaxed) && !shared.device.is_iwarp {
            return Some(used(&shared.name(), request, false));
        }
        hint = Some(used(&shared.name(), request, true));
    }
    hint
}

fn used(name: &str, request: &Request, is_hint: bool) -> Use {
    Use { text: format!("request {} of {name}", request.id), place: request.place, is_hint }
}

/// Returns whether a queue pair of a shared queue can still take requests from it.
fn is_served(tables: &Tables, shared: &Arc<SharedQueue>) -> bool {
    let is_its = |pair: &QueuePair| {
        pair.shared.as_ref().is_some_and(|other| Arc::ptr_eq(other, shared))
            && pair.queues.lock().is_live()
    };
    tables.pairs.all().iter().any(|pair| is_its(pair))
}

/// Reports that a region ended, or changed, while a request used it.
pub(crate) fn ended_in_use(region: &Region, found: &Use, place: Place) {
    report::report(&Finding {
        rule: Rule::RegionInUse,
        is_hint: found.is_hint,
        text: format!(
            "{} uses {}, which {} ends or changes",
            found.text,
            region.name(),
            place.call
        ),
        began: Some(found.place),
        shown: place,
    });
}

/// Notes that a queue pair may have taken requests of shared queues without a completion.
fn doubt_shared(tables: &Tables, pair: &QueuePair) {
    let doubt = |shared: &SharedQueue| shared.is_doubtful.store(true, Ordering::Relaxed);
    if let Some(shared) = &pair.shared {
        doubt(shared);
    }
    if pair.kind != IBV_QPT_XRC_RECV {
        return;
    }
    // It may have taken them from any queue of XRC.
    for shared in tables.shared.all() {
        if shared.device_address == pair.device_address && shared.completes != 0 {
            doubt(&shared);
        }
    }
}

/// Checks a queue pair that is destroyed or reset, and forgets its requests.
pub(crate) fn end_requests(tables: &Tables, pair: &QueuePair, queues: &mut Queues, place: Place) {
    if pair.device.is_iwarp || !matches!(queues.state, IBV_QPS_RESET | IBV_QPS_INIT) {
        doubt_shared(tables, pair);
    }
    let expected = queues.sends.requests.iter().find(|request| request.is_signaled);
    if queues.state != IBV_QPS_RESET
        && !queues.is_doubtful
        && let Some(request) = expected
    {
        report::report(&Finding {
            rule: Rule::DestroyedInFlight,
            is_hint: true,
            text: format!(
                "{} is destroyed or reset before the completion of request {}",
                pair.name(),
                request.id
            ),
            began: Some(request.place),
            shown: place,
        });
    }
    pair.clear(queues);
}

/// Reports that an object could not be destroyed, because others use it.
pub(crate) fn refused(name: &str, user: &str, made: Place, place: Place) {
    report::report(&Finding {
        rule: Rule::DestroyedInUse,
        is_hint: false,
        text: format!("{name} cannot be destroyed, because {user} still uses it"),
        began: Some(made),
        shown: place,
    });
}

/// An object that exists.
struct Left {
    name: String,
    device: usize,
    made: Place,
}

/// Returns all objects of devices.
fn left(tables: &Tables) -> Vec<Left> {
    let mut left = Vec::new();
    for pair in tables.pairs.all() {
        left.push(Left { name: pair.name(), device: pair.device_address, made: pair.made });
    }
    for queue in tables.shared.all() {
        left.push(Left { name: queue.name(), device: queue.device_address, made: queue.made });
    }
    for queue in tables.completion_queues.all() {
        left.push(Left { name: queue.name(), device: queue.device, made: queue.made });
    }
    for region in tables.regions.all() {
        left.push(Left { name: region.name(), device: region.device, made: region.made });
    }
    for channel in tables.channels.all() {
        let name = "a channel of completion events".to_owned();
        left.push(Left { name, device: channel.device, made: channel.made });
    }
    for domain in tables.domains.all() {
        let name = "a protection domain".to_owned();
        left.push(Left { name, device: domain.device, made: domain.made });
    }
    left
}

/// Reports what exists of a device that was closed, and forgets it.
pub(crate) fn closed(tables: &Tables, device: usize, place: Place) {
    let Some(name) = tables.devices.remove(device).map(|device| device.name.clone()) else {
        return;
    };
    for object in left(tables).into_iter().filter(|object| object.device == device) {
        report::report(&Finding {
            rule: Rule::ClosedWithObjects,
            is_hint: false,
            text: format!("{name} is closed while {} exists", object.name),
            began: Some(object.made),
            shown: place,
        });
    }
    tables.pairs.retain(|pair| pair.device_address != device);
    tables.shared.retain(|queue| queue.device_address != device);
    tables.completion_queues.retain(|queue| queue.device != device);
    tables.regions.retain(|region| region.device != device);
    tables.channels.retain(|channel| channel.device != device);
    tables.domains.retain(|domain| domain.device != device);
}

/// Reports what exists when the process ends.
pub(crate) fn exit(tables: &Tables) {
    let devices = tables.devices.all().into_iter();
    // librdmacm keeps the devices that it opens.
    let devices = devices.filter(|device| !device.made.stack.is_called_by(MANAGER));
    let devices =
        devices.map(|device| Left { name: device.name.clone(), device: 0, made: device.made });
    let identifiers = tables.identifiers.all().into_iter();
    let identifiers = identifiers.map(|identifier| Left {
        name: identifier.name(),
        device: 0,
        made: identifier.made,
    });
    let place = Place { call: "exit", ..Place::default() };
    manager::exit(tables, place);
    for object in devices.chain(identifiers).chain(left(tables)) {
        report::report(&Finding {
            rule: Rule::NotFreed,
            is_hint: true,
            text: format!("{} still exists when the process ends", object.name),
            began: Some(object.made),
            shown: place,
        });
    }
}
