//! Connections by the connection manager.

use std::io;
use std::net::SocketAddrV4;

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::{Accepted, Listening, Managed};
use vrnic_verbs::cm::{Connection, Listener, Wishes};

calls! { Connections:
    /// Listens for one peer.
    fn listen(&mut self) -> io::Result<Listening> {
        let made = Listener::new()?;
        let port = made.port();
        Ok(Listening { listener: self.listeners.add(made), port })
    }

    /// Waits until a peer connects to a listener, and gives the connection to a QP.
    fn accept(&mut self, listener: u32, with: Managed) -> io::Result<Accepted> {
        let request = self.listeners.take(listener)?.request()?;
        let private = request.private().to_vec();
        let connection = request.accept(self.wishes(&with)?)?;
        connection.established()?;
        Ok(Accepted { connection: self.connections.add(connection), private })
    }

    /// Waits until a peer connects to a listener, and rejects the connection. Returns the peer's
    /// private data.
    fn reject(&mut self, listener: u32, private: Vec<u8>) -> io::Result<Vec<u8>> {
        let request = self.listeners.take(listener)?.request()?;
        let theirs = request.private().to_vec();
        request.reject(&private)?;
        Ok(theirs)
    }

    /// Begins to connect a QP to a listener.
    fn begin_to_connect(&mut self, to: SocketAddrV4, with: Managed) -> io::Result<u32> {
        let connection = Connection::begin(to, self.wishes(&with)?)?;
        Ok(self.connections.add(connection))
    }

    /// Waits until a connection is established. Returns the peer's private data.
    fn established(&mut self, connection: u32) -> io::Result<Vec<u8>> {
        self.connections.get(connection)?.established()
    }

    /// Waits until the request for a connection was rejected. Returns the peer's private data.
    fn rejected(&mut self, connection: u32) -> io::Result<Vec<u8>> {
        self.connections.get(connection)?.rejected()
    }

    /// Closes a connection in the usual way.
    fn disconnect(&mut self, connection: u32) -> io::Result<()> {
        self.connections.get(connection)?.disconnect()
    }

    /// Waits until a connection has ended.
    fn disconnected(&mut self, connection: u32) -> io::Result<()> {
        self.connections.get(connection)?.disconnected()
    }
}

impl Objects {
    fn wishes<'a>(&self, with: &'a Managed) -> io::Result<Wishes<'a>> {
        let Managed { qp, srq, depth, ref private } = *with;
        Ok(Wishes { qpn: self.qps.get(qp)?.number(), srq, depth, private })
    }
}
