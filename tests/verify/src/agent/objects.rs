//! The agent's objects, by handle. Handles of all kinds come from one counter, so that a wrong one
//! is never another object by accident.

use std::collections::BTreeMap;
use std::io;

use crate::model::{DeviceInfo, QpAttr};
use crate::rpc::calls::{
    AllocParent, CqInfo, CreateCq, CreateCqDirect, CreateQp, ModifyQp, MrInfo, QpInfo, RegDmabuf,
    RegMr, RegOneTouch, ResizeCq, ResizeCqFaulting,
};
use crate::verbs::address::Ah;
use crate::verbs::answer;
use crate::verbs::buffer::Buffer;
use crate::verbs::context::Context;
use crate::verbs::cq::{Channel, Cq};
use crate::verbs::memory::{Mr, Pd, Td};
use crate::verbs::qp::{Kind, Qp};
use crate::verbs::srq::Srq;
use crate::verbs::window::Mw;
use crate::verbs::xrc::Xrcd;

/// Objects of one kind.
pub(super) struct Table<T> {
    kind: &'static str,
    map: BTreeMap<u32, T>,
}

impl<T> Table<T> {
    const fn new(kind: &'static str) -> Self {
        Self { kind, map: BTreeMap::new() }
    }

    /// The object of that handle, to be changed.
    pub(super) fn get_mut(&mut self, handle: u32) -> io::Result<&mut T> {
        let kind = self.kind;
        self.map.get_mut(&handle).ok_or_else(|| io::Error::other(format!("no {kind} {handle}")))
    }

    /// The object of that handle.
    pub(super) fn get(&self, handle: u32) -> io::Result<&T> {
        self.map.get(&handle).ok_or_else(|| self.missing(handle))
    }

    /// The handle of the first object that fits.
    pub(super) fn find(&self, fits: impl Fn(&T) -> bool) -> Option<u32> {
        self.map.iter().find(|(_, object)| fits(object)).map(|(handle, _)| *handle)
    }

    /// All objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&u32, &T)> {
        self.map.iter()
    }

    pub(super) fn insert(&mut self, handle: u32, object: T) {
        self.map.insert(handle, object);
    }

    /// Runs a destructor, and keeps the object if that fails.
    pub(super) fn destroy(
        &mut self,
        handle: u32,
        destroy: impl FnOnce(T) -> Result<(), (T, io::Error)>,
    ) -> io::Result<()> {
        let object = self.map.remove(&handle).ok_or_else(|| self.missing(handle))?;
        destroy(object).map_err(|(object, error)| {
            self.map.insert(handle, object);
            error
        })
    }

    /// Destroys everything, the newest first; the first failure is reported, after all have been
    /// tried.
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

/// Everything that an agent owns.
pub(super) struct Objects {
    pub(super) context: Option<Context>,
    pub(super) pds: Table<Pd>,
    pub(super) tds: Table<Td>,
    pub(super) mrs: Table<Mr>,
    pub(super) mws: Table<Mw>,
    pub(super) buffers: Table<Buffer>,
    pub(super) channels: Table<Channel>,
    pub(super) cqs: Table<Cq>,
    pub(super) srqs: Table<Srq>,
    pub(super) xrcds: Table<Xrcd>,
    pub(super) qps: Table<Qp>,
    pub(super) ahs: Table<Ah>,
    last: u32,
    /// True if CQs and QPs get the extended interfaces.
    extended: bool,
    always_extended: bool,
}

impl Objects {
    /// None; `extended` says whether all CQs and QPs shall have the extended interfaces.
    pub(super) fn new(extended: bool) -> Self {
        Self {
            context: None,
            pds: Table::new("PD"),
            tds: Table::new("TD"),
            mrs: Table::new("MR"),
            mws: Table::new("MW"),
            buffers: Table::new("buffer"),
            channels: Table::new("channel"),
            cqs: Table::new("CQ"),
            srqs: Table::new("SRQ"),
            xrcds: Table::new("XRCD"),
            qps: Table::new("QP"),
            ahs: Table::new("AH"),
            last: 0,
            extended,
            always_extended: extended,
        }
    }

    pub(super) fn use_extended(&mut self) -> io::Result<()> {
        self.extended = true;
        Ok(())
    }

    pub(super) fn handle(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    pub(super) fn context(&self) -> io::Result<&Context> {
        self.context.as_ref().ok_or_else(|| io::Error::other("no device is open"))
    }

    pub(super) fn open(&mut self, device: Option<&str>) -> io::Result<DeviceInfo> {
        self.context.insert(Context::open(device)?).info()
    }

    pub(super) fn query(&mut self) -> io::Result<DeviceInfo> {
        self.context()?.info()
    }

    pub(super) fn reset(&mut self) -> io::Result<()> {
        self.extended = self.always_extended;
        let qps = self.qps.clear(Qp::destroy);
        let srqs = self.srqs.clear(Srq::destroy);
        let xrcds = self.xrcds.clear(Xrcd::close);
        let cqs = self.cqs.clear(Cq::destroy);
        let channels = self.channels.clear(Channel::destroy);
        let mws = self.mws.clear(Mw::destroy);
        let mrs = self.mrs.clear(Mr::destroy);
        let ahs = self.ahs.clear(Ah::destroy);
        let pds = self.pds.clear(Pd::destroy);
        let tds = self.tds.clear(Td::destroy);
        for (_, buffer) in std::mem::take(&mut self.buffers.map) {
            buffer.unmap()?;
        }
        qps.and(srqs).and(xrcds).and(cqs).and(channels).and(mws).and(mrs).and(ahs).and(pds).and(tds)
    }

    pub(super) fn alloc_pd(&mut self) -> io::Result<u32> {
        let pd = Pd::new(self.context()?)?;
        let handle = self.handle();
        self.pds.insert(handle, pd);
        Ok(handle)
    }

    pub(super) fn alloc_td(&mut self) -> io::Result<u32> {
        let td = Td::new(self.context()?)?;
        let handle = self.handle();
        self.tds.insert(handle, td);
        Ok(handle)
    }

    pub(super) fn dealloc_td(&mut self, td: u32) -> io::Result<()> {
        self.tds.destroy(td, Td::destroy)
    }

    pub(super) fn alloc_parent(&mut self, c: &AllocParent) -> io::Result<u32> {
        let parent = self.pds.get(c.pd)?.parent(self.context()?, self.tds.get(c.td)?)?;
        let handle = self.handle();
        self.pds.insert(handle, parent);
        Ok(handle)
    }

    pub(super) fn dealloc_pd(&mut self, pd: u32) -> io::Result<()> {
        self.pds.destroy(pd, Pd::destroy)
    }

    pub(super) fn reg_mr(&mut self, c: &RegMr) -> io::Result<MrInfo> {
        let mr = Mr::new(self.pds.get(c.pd)?, c.addr, c.length, c.access)?;
        Ok(self.keep_mr(mr))
    }

    pub(super) fn reg_one_touch(&mut self, c: &RegOneTouch) -> io::Result<MrInfo> {
        let mr = Mr::for_one_touch(self.pds.get(c.pd)?, c.addr, c.length, c.access)?;
        Ok(self.keep_mr(mr))
    }

    pub(super) fn reg_dmabuf(&mut self, c: &RegDmabuf) -> io::Result<MrInfo> {
        let mr = Mr::of_dmabuf(self.pds.get(c.pd)?, self.buffers.get(c.buffer)?, c.access)?;
        Ok(self.keep_mr(mr))
    }

    fn keep_mr(&mut self, made: Mr) -> MrInfo {
        let (lkey, rkey) = made.keys();
        let mr = self.handle();
        self.mrs.insert(mr, made);
        MrInfo { mr, lkey, rkey }
    }

    pub(super) fn dereg_mr(&mut self, mr: u32) -> io::Result<()> {
        self.mrs.destroy(mr, Mr::destroy)
    }

    pub(super) fn create_channel(&mut self) -> io::Result<u32> {
        let channel = Channel::new(self.context()?)?;
        let handle = self.handle();
        self.channels.insert(handle, channel);
        Ok(handle)
    }

    pub(super) fn destroy_channel(&mut self, channel: u32) -> io::Result<()> {
        self.channels.destroy(channel, Channel::destroy)
    }

    pub(super) fn create_cq(&mut self, c: &CreateCq) -> io::Result<CqInfo> {
        let channel = c.channel.map(|h| self.channels.get(h)).transpose()?;
        let cq = Cq::new(self.context()?, c.cqe, channel, c.vector, self.extended)?;
        let capacity = cq.capacity();
        let handle = self.handle();
        self.cqs.insert(handle, cq);
        Ok(CqInfo { cq: handle, capacity })
    }

    pub(super) fn create_cq_direct(&mut self, c: &CreateCqDirect) -> io::Result<(CqInfo, u32)> {
        let channel = c.channel.map(|h| self.channels.get(h)).transpose()?;
        let vector = (c.vector, c.any_vector);
        let (cq, vector) = Cq::direct(self.context()?, c.cqe, channel, vector)?;
        let capacity = cq.capacity();
        let handle = self.handle();
        self.cqs.insert(handle, cq);
        Ok((CqInfo { cq: handle, capacity }, vector))
    }

    pub(super) fn resize_cq(&mut self, c: &ResizeCq) -> io::Result<u32> {
        let cq = self.cqs.get(c.cq)?;
        cq.resize(c.cqe)?;
        Ok(cq.capacity())
    }

    pub(super) fn resize_cq_faulting(&mut self, c: &ResizeCqFaulting) -> io::Result<Option<i32>> {
        let (cq, ring) = (self.cqs.get(c.cq)?, self.buffers.get(c.buffer)?.addr());
        Ok(answer::resize_cq(cq, 1 << c.log_size, ring, c.log_size)?.raw_os_error())
    }

    pub(super) fn destroy_cq(&mut self, cq: u32) -> io::Result<()> {
        self.cqs.destroy(cq, Cq::destroy)
    }

    pub(super) fn create_qp(&mut self, c: &CreateQp) -> io::Result<QpInfo> {
        let pd = self.pds.get(c.pd)?;
        let (send, recv) = (self.cqs.get(c.send_cq)?, self.cqs.get(c.recv_cq)?);
        let srq = c.srq.map(|srq| self.srqs.get(srq)).transpose()?;
        let kind = match &c.extras {
            Some(extras) => Kind::Direct(extras),
            None if self.extended => Kind::Extended,
            None => Kind::Plain,
        };
        let (qp, cap) = Qp::new(pd, send, recv, c.qp_type, c.cap, c.signal_all, (srq, kind))?;
        let qpn = qp.number();
        let handle = self.handle();
        self.qps.insert(handle, qp);
        Ok(QpInfo { qp: handle, qpn, cap })
    }

    pub(super) fn modify_qp(&mut self, c: &ModifyQp) -> io::Result<()> {
        self.qps.get(c.qp)?.modify(&c.attr, c.mask)
    }

    pub(super) fn query_qp(&mut self, qp: u32) -> io::Result<QpAttr> {
        self.qps.get(qp)?.query()
    }

    pub(super) fn destroy_qp(&mut self, qp: u32) -> io::Result<()> {
        self.qps.destroy(qp, Qp::destroy)
    }
}
