//! The agent's objects by handle. Handles of all kinds come from one counter, so that a wrong
//! handle is never the handle of another object.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;

#[cfg(feature = "vrnic")]
use vrnic_verbs::adapter::transfer::Range;
use vrnic_verbs::address::Ah;
use vrnic_verbs::cm::{Connection, Listener};
use vrnic_verbs::context::Context;
use vrnic_verbs::cq::{Channel, Cq};
use vrnic_verbs::device_memory::DeviceMemory;
use vrnic_verbs::flow::Flow;
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::memory::{Mr, Pd, Td};
use vrnic_verbs::qp::Qp;
use vrnic_verbs::rss::{Wq, WqTable};
use vrnic_verbs::srq::Srq;
use vrnic_verbs::window::Mw;
use vrnic_verbs::xrc::Xrcd;

/// Objects of one kind.
pub(super) struct Table<T> {
    kind: &'static str,
    map: BTreeMap<u32, T>,
    /// The last handle that any table has used.
    last: Rc<Cell<u32>>,
}

impl<T> Table<T> {
    fn new(kind: &'static str, last: &Rc<Cell<u32>>) -> Self {
        Self { kind, map: BTreeMap::new(), last: Rc::clone(last) }
    }

    /// Returns the object with this handle, for changes.
    pub(super) fn get_mut(&mut self, handle: u32) -> io::Result<&mut T> {
        let kind = self.kind;
        self.map.get_mut(&handle).ok_or_else(|| io::Error::other(format!("no {kind} {handle}")))
    }

    /// Returns the object with this handle.
    pub(super) fn get(&self, handle: u32) -> io::Result<&T> {
        self.map.get(&handle).ok_or_else(|| self.missing(handle))
    }

    /// Returns the handle of the first object for which `fits` returns true.
    pub(super) fn find(&self, fits: impl Fn(&T) -> bool) -> Option<u32> {
        self.map.iter().find(|(_, object)| fits(object)).map(|(handle, _)| *handle)
    }

    /// Returns all objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&u32, &T)> {
        self.map.iter()
    }

    /// Adds an object, and returns its handle.
    pub(super) fn add(&mut self, object: T) -> u32 {
        self.last.set(self.last.get() + 1);
        self.map.insert(self.last.get(), object);
        self.last.get()
    }

    /// Removes an object, and returns it.
    pub(super) fn take(&mut self, handle: u32) -> io::Result<T> {
        self.map.remove(&handle).ok_or_else(|| self.missing(handle))
    }

    /// Runs a destructor, and keeps the object if the destructor fails.
    pub(super) fn destroy(
        &mut self,
        handle: u32,
        destroy: impl FnOnce(T) -> Result<(), (T, io::Error)>,
    ) -> io::Result<()> {
        let object = self.take(handle)?;
        destroy(object).map_err(|(object, error)| {
            self.map.insert(handle, object);
            error
        })
    }

    /// Destroys all objects, the newest first. Reports the first failure after all have been tried.
    fn clear(&mut self, destroy: impl Fn(T) -> Result<(), (T, io::Error)>) -> io::Result<()> {
        let mut result = Ok(());
        for (handle, object) in std::mem::take(&mut self.map).into_iter().rev() {
            if let Err((object, error)) = destroy(object) {
                self.map.insert(handle, object);
                let text = format!("destroying {} {handle}: {error}", self.kind);
                result = result.and(Err(io::Error::other(text)));
            }
        }
        result
    }

    fn missing(&self, handle: u32) -> io::Error {
        io::Error::other(format!("no {} {handle}", self.kind))
    }
}

/// All objects of an agent.
pub(super) struct Objects {
    pub(super) context: Option<Context>,
    pub(super) pds: Table<Pd>,
    pub(super) tds: Table<Td>,
    pub(super) dms: Table<DeviceMemory>,
    pub(super) mrs: Table<Mr>,
    pub(super) mws: Table<Mw>,
    pub(super) buffers: Table<Buffer>,
    pub(super) channels: Table<Channel>,
    pub(super) cqs: Table<Cq>,
    pub(super) srqs: Table<Srq>,
    pub(super) xrcds: Table<Xrcd>,
    pub(super) qps: Table<Qp>,
    pub(super) flows: Table<Flow>,
    pub(super) wqs: Table<Wq>,
    pub(super) wq_tables: Table<WqTable>,
    pub(super) sockets: Table<UdpSocket>,
    #[cfg(feature = "vrnic")]
    pub(super) ranges: Table<Range>,
    pub(super) ahs: Table<Ah>,
    pub(super) listeners: Table<Listener>,
    pub(super) connections: Table<Connection>,
    /// True if CQs and QPs are created with the extended interfaces.
    pub(super) extended: bool,
    always_extended: bool,
}

impl Objects {
    /// Returns empty tables. `extended` means that all CQs and QPs are created with the extended
    /// interfaces.
    pub(super) fn new(extended: bool) -> Self {
        let last = &Rc::default();
        Self {
            context: None,
            pds: Table::new("PD", last),
            tds: Table::new("TD", last),
            dms: Table::new("DM", last),
            mrs: Table::new("MR", last),
            mws: Table::new("MW", last),
            buffers: Table::new("buffer", last),
            channels: Table::new("channel", last),
            cqs: Table::new("CQ", last),
            srqs: Table::new("SRQ", last),
            xrcds: Table::new("XRCD", last),
            qps: Table::new("QP", last),
            flows: Table::new("flow", last),
            wqs: Table::new("WQ", last),
            wq_tables: Table::new("table of WQs", last),
            sockets: Table::new("socket", last),
            #[cfg(feature = "vrnic")]
            ranges: Table::new("range", last),
            ahs: Table::new("AH", last),
            listeners: Table::new("listener", last),
            connections: Table::new("connection", last),
            extended,
            always_extended: extended,
        }
    }

    pub(super) fn context(&self) -> io::Result<&Context> {
        self.context.as_ref().ok_or_else(|| io::Error::other("no device is open"))
    }

    /// Destroys all objects, dependent objects first. Reports the first failure after all have been
    /// tried.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.extended = self.always_extended;
        #[cfg(feature = "vrnic")]
        self.ranges.clear(Range::destroy)?;
        let flows = self.flows.clear(Flow::destroy);
        self.sockets.map.clear();
        let qps = self.qps.clear(Qp::destroy);
        let wq_tables = self.wq_tables.clear(WqTable::destroy);
        let wqs = self.wqs.clear(Wq::destroy);
        let connections = self.connections.clear(Connection::destroy);
        let srqs = self.srqs.clear(Srq::destroy);
        let xrcds = self.xrcds.clear(Xrcd::close);
        let cqs = self.cqs.clear(Cq::destroy);
        let channels = self.channels.clear(Channel::destroy);
        let mws = self.mws.clear(Mw::destroy);
        let mrs = self.mrs.clear(Mr::destroy);
        let dms = self.dms.clear(DeviceMemory::destroy);
        let ahs = self.ahs.clear(Ah::destroy);
        let pds = self.pds.clear(Pd::destroy);
        let tds = self.tds.clear(Td::destroy);
        for (_, buffer) in std::mem::take(&mut self.buffers.map) {
            buffer.unmap()?;
        }
        flows
            .and(qps)
            .and(wq_tables)
            .and(wqs)
            .and(connections)
            .and(srqs)
            .and(xrcds)
            .and(cqs)
            .and(channels)
            .and(mws)
            .and(mrs)
            .and(dms)
            .and(ahs)
            .and(pds)
            .and(tds)
    }
}
