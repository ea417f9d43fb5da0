//! The ports of the switch, as they come, connect, disconnect, and go.

use std::io;
use std::sync::Arc;

use rustix::event::epoll::{self, EventFlags};

use super::{Switch, Token};
use crate::net::handle::Command;
use crate::net::line::Change;
use crate::net::outbox::Sender;
use crate::net::port::Port;
use crate::net::port::setup::PortSetup;
use crate::net::table::PortId;

impl Switch {
    /// Runs the commands of other threads.
    pub(super) fn run_commands(&mut self) {
        self.shared.bell.take();
        for command in self.shared.commands() {
            match command {
                Command::Add(setup, reply) => {
                    // The caller may not wait for the result any more.
                    let _nobody = reply.send(self.add(*setup));
                }
                Command::SetLanes(name, settings, reply) => {
                    self.set_lanes(name, settings.map(|it| *it));
                    let _nobody = reply.send(());
                }
                Command::Remove(name, reply) => {
                    let _nobody = reply.send(self.remove(&name));
                }
            }
        }
    }

    /// Adds a port, and connects its line if it can be connected at once.
    pub(super) fn add(&mut self, setup: PortSetup) -> io::Result<()> {
        let id = self.next;
        let mut port = Port::new(setup, Arc::clone(&self.shared.captures));
        if let Some(door) = port.door() {
            epoll::add(&self.epoll, door, Token::Door(id).data(), EventFlags::IN)?;
        }
        self.next += 1;
        let status = port.status();
        port.addresses().for_each(|mac| self.table.bind(mac, id));
        if let Some(mac) = port.mac() {
            let sender = Sender { port: id, status: Arc::clone(status), source: port.source() };
            self.shared.outbox.add(mac, sender);
        }
        self.shared.ports.write().insert(id, Arc::clone(status));
        // A line whose descriptor exists from the start is connected already.
        let change = port.tick();
        let change = if port.wire().is_some() { Change::Connected } else { change };
        port.set_carrier(self.carrier);
        if port.is_polled() {
            self.polled.push(id);
        }
        self.ports.insert(id, port);
        self.apply_lanes(id);
        self.follow(id, change);
        self.follow_mtu();
        Ok(())
    }

    /// Removes a port. Returns false if there is none of this name.
    fn remove(&mut self, name: &str) -> bool {
        let named = self.ports.iter().find(|(_, port)| port.status().name() == name);
        let Some(id) = named.map(|(id, _)| *id) else { return false };
        self.disconnect(id);
        self.polled.retain(|polled| *polled != id);
        if let Some(port) = self.ports.remove(&id) {
            port.addresses().for_each(|mac| self.table.unbind(mac, id));
            port.mac().inspect(|mac| self.shared.outbox.remove(*mac));
        }
        self.shared.ports.write().remove(&id);
        self.laned.retain(|laned| *laned != id);
        self.follow_mtu();
        true
    }

    /// Admits a client of a listening socket.
    pub(super) fn serve_door(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        match port.admit() {
            Ok(change) => self.follow(id, change),
            Err(error) => {
                port.log().line(|port| {
                    tracing::warn!(port, %error, "a client cannot be accepted; vrnicd tries again every second");
                });
                // The listening socket would be reported as readable all the time.
                port.door_shut = true;
                self.watch_door(id, EventFlags::empty());
            }
        }
    }

    /// Starts or stops to watch a port's listening socket for clients.
    pub(super) fn watch_door(&self, id: PortId, flags: EventFlags) {
        let door = self.ports.get(&id).and_then(Port::door);
        let watched =
            door.map(|door| epoll::modify(&self.epoll, door, Token::Door(id).data(), flags));
        if let Some(Err(error)) = watched {
            tracing::error!(%error, "new clients may not be accepted: epoll cannot change the events of a listening socket");
        }
    }

    /// Applies a change of a port's line.
    pub(super) fn follow(&mut self, id: PortId, change: Change) {
        match change {
            Change::None => {}
            Change::Gone => self.disconnect(id),
            Change::Connected => {
                let wire = self.ports.get(&id).and_then(Port::wire);
                let watched = wire.map(|wire| {
                    epoll::add(&self.epoll, wire, Token::Wire(id).data(), EventFlags::IN)
                });
                if let Some(Err(error)) = watched {
                    tracing::error!(%error, "a link was closed: epoll cannot watch its descriptor");
                    self.disconnect(id);
                }
            }
        }
    }

    /// Closes the line of a port, and forgets the addresses behind it.
    pub(super) fn disconnect(&mut self, id: PortId) {
        self.lost = true;
        self.table.flush(id);
        let Some(port) = self.ports.get_mut(&id) else { return };
        // Closing the wire does not take it out of the set if another process has the file open.
        // It is not in the set if epoll could not watch it.
        if let Some(wire) = port.wire() {
            let _not_watched = epoll::delete(&self.epoll, wire);
        }
        port.disconnect();
    }
}
