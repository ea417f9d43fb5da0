//! The state of a QP that gets the TCP connection of a TOE QP as soon as RDMA begins on it.

use vrnic_abi::connection::{ConnectionStatus, Ending, RdmaState};

use super::lifecycle::Lifecycle;
use crate::host::Host;
use crate::objects::qp::{Peer, Qp, WeakPeer};

/// A connection that another QP has.
#[derive(Debug)]
pub struct Promise<H: Host> {
    /// The QP that has the connection.
    from: WeakPeer<H>,
    /// The stages of the connection, as reported to the driver.
    pub life: Lifecycle,
}

impl<H: Host> Promise<H> {
    /// Creates the state of a QP that gets the connection of `from`.
    #[must_use]
    pub fn new(from: &Peer<H>) -> Self {
        Self { from: from.downgrade(), life: Lifecycle::default() }
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn status(&self) -> ConnectionStatus {
        let failed = self.life.ending() != Ending::None;
        let state = if failed { RdmaState::Error } else { RdmaState::Idle };
        ConnectionStatus { state: state as u8, ..self.life.bare_status() }
    }

    /// Returns the QP that has the connection, if it still exists.
    pub(crate) fn from(&self) -> Option<Peer<H>> {
        self.from.upgrade()
    }

    /// Returns whether this QP has the connection.
    pub(crate) fn is_of(&self, from: &Qp<H>) -> bool {
        self.from.is(from)
    }

    /// Records that the QP does not get the connection.
    pub fn end(&mut self, ending: Ending) {
        self.life.end(ending);
        self.life.gone();
    }

    /// Ends the connection, because the QP that gets it has ended.
    pub fn refuse(&mut self) {
        self.end(Ending::Local);
        if let Some(Peer { core, qp }) = self.from() {
            qp.fail();
            qp.schedule(&core);
        }
    }
}
