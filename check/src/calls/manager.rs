//! The connection manager: functions of librdmacm. What it calls itself is not looked at here: for
//! identifiers without a channel of the program it takes the events, and acknowledges them.

use std::ffi::{c_int, c_void};

use crate::calls::real::interpose;
use crate::checker::{here, thread, watch};
use crate::ffi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP, rdma_cm_event, rdma_cm_id,
    rdma_conn_param, rdma_event_channel, sockaddr,
};
use crate::model::manager::{self, Message};
use crate::model::objects::{Identifier, Received};
use crate::model::tables::Tables;
use crate::stack::Place;

/// Notes an identifier.
///
/// # Safety
/// The identifier exists.
unsafe fn created(tables: &Tables, id: *mut rdma_cm_id, place: Place) {
    // SAFETY: as the caller promises.
    let space = unsafe { (*id).ps };
    let number = tables.identifiers.next_number();
    tables.identifiers.insert(id as usize, Identifier::new(number, space == RDMA_PS_UDP, place));
}

/// Returns the longest private data of a message of an identifier; none if that is not known.
///
/// # Safety
/// The identifier exists.
unsafe fn limit(tables: &Tables, id: *mut rdma_cm_id, message: Message) -> Option<u8> {
    // SAFETY: as the caller promises.
    let (space, verbs) = unsafe { ((*id).ps, (*id).verbs) };
    let device = tables.devices.get(verbs as usize)?;
    // iWARP has room for all that a program can pass.
    if device.is_iwarp || space == RDMA_PS_IB {
        return None;
    }
    match space {
        RDMA_PS_TCP => Some(message.connected()),
        RDMA_PS_UDP => Some(message.datagram()),
        _ => None,
    }
}

/// Returns the length of the private data of these parameters.
///
/// # Safety
/// The parameters can be read, if there are any.
unsafe fn length(param: *const rdma_conn_param) -> u8 {
    // SAFETY: as the caller promises.
    unsafe { param.as_ref() }
        .map_or(0, |param| if param.private_data.is_null() { 0 } else { param.private_data_len })
}

/// Checks a message with private data that has been sent, or not.
fn check_message(id: *mut rdma_cm_id, message: Message, length: u8, error: c_int, place: Place) {
    watch(|tables| {
        let identifier = tables.identifiers.get(id as usize)?;
        if error != 0 {
            // SAFETY: the program has passed an identifier, which this call does not end.
            let limit = unsafe { limit(tables, id, message) }?;
            manager::check_length(&identifier, length, limit, place);
        }
        if message != Message::Reject {
            manager::connected(&identifier, error == 0, place);
        }
        Some(())
    });
}

interpose! {
    within crate::checker::managed, crate::checker::is_managed;

    /// Creates an identifier.
    fn rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id,
        context: *mut c_void, space: u32) -> c_int, or -1; |real| {
        let error = real();
        if error == 0 {
            // SAFETY: the call has succeeded, and so has filled it in.
            watch(|tables| unsafe { created(tables, *id, here("rdma_create_id")) });
        }
        error
    }

    /// Destroys an identifier.
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int, or -1; |real| {
        watch(|tables| {
            let identifier = tables.identifiers.get(id as usize)?;
            manager::check_end(tables, &identifier, thread(), here("rdma_destroy_id"));
            // Another thread may get its address as soon as it is destroyed.
            tables.identifiers.remove(id as usize)
        });
        real()
    }

    /// Waits for an event.
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int,
        or -1; |real| {
        let error = real();
        if error == 0 {
            watch(|tables| {
                let place = here("rdma_get_cm_event");
                // SAFETY: the call has succeeded, and so has filled it in.
                let (address, event) = unsafe { (*event as usize, &**event) };
                let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
                if is_request && tables.identifiers.get(event.id as usize).is_none() {
                    // SAFETY: the event has a new identifier.
                    unsafe { created(tables, event.id, place) };
                }
                // A request for a connection is an event of the identifier that listens.
                let owner = if is_request { event.listen_id } else { event.id };
                let owner = tables.identifiers.get(owner as usize)?;
                let kind = manager::event_name(event.event);
                let received = Received { owner, kind, taken: place, thread: thread() };
                tables.manager_events.insert(address, received);
                Some(())
            });
        }
        error
    }

    /// Acknowledges an event.
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int, or -1; |real| {
        // The memory of the event may be another one's as soon as it is acknowledged.
        watch(|tables| tables.manager_events.remove(event as usize));
        real()
    }

    /// Looks for the device of an address.
    fn rdma_resolve_addr(id: *mut rdma_cm_id, from: *mut sockaddr, to: *mut sockaddr,
        timeout: c_int) -> c_int, or -1; |real| {
        let error = real();
        if error != 0 {
            watch(|tables| {
                let identifier = tables.identifiers.get(id as usize)?;
                manager::check_again(&identifier, here("rdma_resolve_addr"));
                Some(())
            });
        }
        error
    }

    /// Connects.
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int, or -1; |real| {
        let place = watch(|_| here("rdma_connect")).unwrap_or_default();
        // SAFETY: the program passes parameters, or none.
        let length = unsafe { length(param) };
        let error = real();
        check_message(id, Message::Request, length, error, place);
        error
    }

    /// Accepts a connection.
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int, or -1; |real| {
        let place = watch(|_| here("rdma_accept")).unwrap_or_default();
        // SAFETY: the program passes parameters, or none.
        let length = unsafe { length(param) };
        let error = real();
        check_message(id, Message::Reply, length, error, place);
        error
    }

    /// Refuses a connection.
    fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int, or -1; |real| {
        let place = watch(|_| here("rdma_reject")).unwrap_or_default();
        let error = real();
        let length = if data.is_null() { 0 } else { length };
        check_message(id, Message::Reject, length, error, place);
        error
    }

    /// Ends a connection.
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int, or -1; |real| {
        watch(|tables| {
            let identifier = tables.identifiers.get(id as usize)?;
            manager::disconnected(&identifier, here("rdma_disconnect"));
            Some(())
        });
        real()
    }
}
