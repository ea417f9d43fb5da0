//! Many idle QPs with TCP connections on the same rings.

use vrnic_abi::admin::{CreateQp, ModifyQp, Opcode, OpenConnection, command};
use vrnic_abi::connection::{Connection, Received};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::uar::SLOTS;
use zerocopy::IntoBytes;

use crate::admin::Refused;
use crate::bus::Bus;
use crate::endpoint::Endpoint;
use crate::qp::{INIT, attributes};
use crate::stream;

/// The first port of initiators.
const PORT: u16 = 10_000;
/// log2 of the entries of the rings. Each QP may then have as many outstanding work requests as an
/// adapter allows.
const LOG_WQES: u8 = 8;

/// QPs of the type of an endpoint, with its PD and its CQs.
pub struct IdleQps<'a, B> {
    base: &'a Endpoint<B>,
    ring: u64,
    page: u64,
    qps: Vec<u32>,
    uars: Vec<u32>,
    /// Free slots of the last UAR.
    free: u32,
}

impl<'a, B: Bus> IdleQps<'a, B> {
    /// Prepares the rings.
    #[must_use]
    pub fn new(base: &'a Endpoint<B>) -> Self {
        let ram = base.guest.ram();
        let (ring, page) = (ram.alloc(1 << (LOG_WQES + 7)), ram.alloc(4096));
        Self { base, ring, page, qps: Vec::new(), uars: Vec::new(), free: 0 }
    }

    /// Connects QPs of two sets, and calls `between` after each connection.
    ///
    /// # Errors
    /// If an adapter refuses.
    pub fn connect(
        sets: [&mut Self; 2],
        count: u16,
        mut between: impl FnMut(),
    ) -> Result<(), Refused> {
        let macs = sets.each_ref().map(|set| set.base.guest.mac());
        for nth in 0..count {
            for own in 0..2 {
                let macs = [macs[own], macs[1 - own]];
                let mut connection = match sets[own].base.kind {
                    Type::Toe => stream::bare_connection(own, macs, stream::MSS),
                    _ => stream::connection(own, macs, stream::MSS),
                };
                let port = match own {
                    0 => &mut connection.local_port,
                    _ => &mut connection.remote_port,
                };
                *port = (PORT + nth).into();
                sets[own].add(&connection, macs[1])?;
            }
            between();
            sets.iter().for_each(|set| set.take_events());
        }
        Ok(())
    }

    /// Takes the events of the connections and drops them.
    pub fn take_events(&self) {
        while self.base.guest.event().is_some() {}
    }

    /// Creates a QP with this connection.
    fn add(&mut self, connection: &Connection, peer: [u8; 6]) -> Result<(), Refused> {
        let guest = &self.base.guest;
        if self.free == 0 {
            self.uars.push(guest.on_object(Opcode::AllocUar, self.base.context)?);
            self.free = SLOTS;
        }
        self.free -= 1;
        let params = CreateQp {
            sq_table: self.ring.into(),
            rq_table: self.ring.into(),
            sq_page_shift: 12,
            rq_page_shift: 12,
            sq_log_size: LOG_WQES,
            sq_log_stride: 7,
            rq_log_size: LOG_WQES,
            rq_log_stride: 5,
            pdn: self.base.pdn.into(),
            send_cqn: self.base.send_cq.cqn.into(),
            recv_cqn: self.base.recv_cq.cqn.into(),
            uar: self.uars.last().copied().unwrap_or_default().into(),
            qp_type: self.base.kind as u8,
            ..CreateQp::default()
        };
        let (qpn, ..) = guest.create_qp(&params)?;
        self.qps.push(qpn);
        let mut attributes = attributes(peer, 0);
        attributes.state = State::Init as u8;
        guest.ram().write(self.page, attributes.as_bytes());
        guest.command::<command::ModifyQp>(&ModifyQp::new(qpn, INIT.bits(), self.page))?;
        // A connection of bytes has no received ones: what follows it is zero.
        guest.ram().write(self.page, &[0; size_of::<Connection>() + size_of::<Received>()]);
        guest.ram().write(self.page, connection.as_bytes());
        guest.command::<command::OpenConnection>(&OpenConnection::new(qpn, self.page))
    }

    /// Destroys the QPs.
    ///
    /// # Errors
    /// If the adapter refuses.
    pub fn destroy(self) -> Result<(), Refused> {
        for qpn in self.qps {
            self.base.guest.on_object(Opcode::DestroyQp, qpn)?;
        }
        for uar in self.uars {
            self.base.guest.on_object(Opcode::FreeUar, uar)?;
        }
        Ok(())
    }
}
