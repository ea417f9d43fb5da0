//! What a kernel driver does: it brings the adapter up and executes commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use rustix::io::Errno;
use vrnic_abi::admin::{
    Command, CreateEq, DeviceCaps, ModifyQp, PARAMS_LEN, QueryParams, QueryQp, SetGid, Status,
    command,
};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, AttrMask, NO_VLAN};
use vrnic_abi::regs::{self, Control};
use vrnic_abi::{Cqn, Eqn, Qpn, SlotIndex, uar};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::limits::Limits;
use vrnic_packet::MacAddr;
use vrnic_profiles::{Maxima, Object, Profile};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::gsi::{self, Commands, Gsi};
use super::host::{DRIVER_LEN, ProcessHost};
use super::ring::{AdminQueue, EventQueue, Ring, driver_addr};
use crate::memory::words;

/// log2 of the number of entries of the admin rings.
const ADMIN_LOG: u8 = 2;
/// log2 of the number of entries of the asynchronous event queue, and of that for completions.
const ASYNC_LOG: u8 = 8;
const COMPLETION_LOG: u8 = 12;
/// The places of the rings, and of the buffer of commands, in the driver's memory.
const COMMANDS: u64 = 0x1000;
const COMPLETIONS: u64 = 0x2000;
const ASYNC: u64 = 0x3000;
const COMPLETION_EVENTS: u64 = 0x4000;
const BUFFER: u64 = COMPLETION_EVENTS + EventQueue::len(COMPLETION_LOG);
/// The place of queue pair 1.
const GSI: u64 = BUFFER + 0x1000;
const _: () = assert!(EventQueue::len(ASYNC_LOG) <= COMPLETION_EVENTS - ASYNC);
const _: () = assert!(GSI + gsi::LEN <= DRIVER_LEN);
/// Time after which a command that has not completed has failed.
const LIMIT: Duration = Duration::from_secs(10);

/// An adapter that is up.
#[derive(Debug)]
pub struct Driver {
    adapter: Arc<Adapter<ProcessHost>>,
    profile: Profile,
    /// What the adapter has, as far as the profile has it, too.
    caps: DeviceCaps,
    /// The event queue to which CQs are bound.
    eqn: Eqn,
    /// Queue pair 1.
    gsi: Gsi,
    admin: Mutex<AdminQueue>,
    events: Mutex<[EventQueue; 2]>,
}

impl Driver {
    /// Returns the most objects that an adapter can have.
    #[must_use]
    pub fn most() -> Limits {
        Self::limits(&Profile::default())
    }

    /// Returns the limits of an adapter with a profile. Device memory is a part of device files.
    #[must_use]
    pub fn limits(profile: &Profile) -> Limits {
        let usual = Limits::default();
        let most = |object, usual| profile.exhaustion(object).map_or(usual, |limit| limit.after);
        Limits {
            device_memory: 0,
            qp: most(Object::Qp, usual.qp),
            cq: most(Object::Cq, usual.cq),
            srq: most(Object::Srq, usual.srq),
            mr: most(Object::Mr, usual.mr),
            ..usual
        }
    }

    /// Creates an adapter with this name, MAC and limits in a network, and brings it up.
    ///
    /// # Errors
    /// Says what the adapter refuses.
    pub fn new(
        name: &str,
        mac: MacAddr,
        host: ProcessHost,
        limits: Limits,
        fabric: &Arc<Fabric<ProcessHost>>,
    ) -> anyhow::Result<Self> {
        Self::with_profile(name, mac, host, limits, Profile::default(), fabric)
    }

    /// Creates one that is the device of a profile for programs.
    ///
    /// # Errors
    /// Says what the adapter refuses.
    pub fn with_profile(
        name: &str,
        mac: MacAddr,
        host: ProcessHost,
        limits: Limits,
        profile: Profile,
        fabric: &Arc<Fabric<ProcessHost>>,
    ) -> anyhow::Result<Self> {
        let adapter = Adapter::new(name, mac, host, fabric, 1, with_own(limits));
        adapter.set_link(profile.port_up);
        let ring = |addr, log| Ring { addr, log };
        let admin = AdminQueue::new(ring(COMMANDS, ADMIN_LOG), ring(COMPLETIONS, ADMIN_LOG));
        let slot = SlotIndex::new(uar::ASYNC_EQ_SLOT);
        let events = [
            EventQueue::new(ring(ASYNC, ASYNC_LOG), slot),
            EventQueue::new(ring(COMPLETION_EVENTS, COMPLETION_LOG), slot),
        ];
        let mut this = Self {
            adapter,
            profile,
            caps: DeviceCaps::new_zeroed(),
            eqn: Eqn::default(),
            gsi: Gsi::default(),
            admin: Mutex::new(admin),
            events: Mutex::new(events),
        };
        this.bring_up(&limits).with_context(|| format!("adapter {name} cannot be brought up"))?;
        Ok(this)
    }

    fn bring_up(&mut self, limits: &Limits) -> anyhow::Result<()> {
        let read = |offset| self.adapter.read_register(offset);
        ensure!(read(regs::MAGIC) == regs::MAGIC_VALUE, "the adapter is not a vrnic");
        self.write(regs::CONTROL, Control::RESET.bits());
        self.write_address(regs::ADMIN_SQ_LO, COMMANDS);
        self.write_address(regs::ADMIN_CQ_LO, COMPLETIONS);
        self.write(regs::ADMIN_LOG_SIZE, ADMIN_LOG.into());
        self.write_address(regs::ASYNC_EQ_LO, ASYNC);
        self.write(regs::ASYNC_EQ_LOG_SIZE, ASYNC_LOG.into());
        self.write(regs::CONTROL, Control::ENABLE.bits());
        let status = regs::Status::from_bits_retain(self.adapter.read_register(regs::STATUS));
        if !status.contains(regs::Status::ENABLED) {
            bail!("fatal code {}", self.adapter.read_register(regs::FATAL_CODE));
        }
        let ring = Ring { addr: COMPLETION_EVENTS, log: COMPLETION_LOG };
        let eq = self.command::<command::CreateEq>(&CreateEq::new(ring.pages(), 1, ring.log))?;
        self.eqn = eq.eqn;
        let [_, completions] = self.events.get_mut();
        *completions = EventQueue::new(ring, eq.slot);
        self.caps = self.filled::<command::QueryDevice, _>(QueryParams::new)?;
        lower(&mut self.caps, &self.profile.limits);
        for (place, limit) in [
            (&mut self.caps.max_cq, limits.cq),
            (&mut self.caps.max_pd, limits.pd),
            (&mut self.caps.max_mr, limits.mr),
        ] {
            *place = limit.min(place.get()).into();
        }
        self.gsi = Gsi::create(self, GSI)?;
        Ok(())
    }

    /// Returns the adapter.
    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter<ProcessHost>> {
        &self.adapter
    }

    /// Returns the host of the adapter.
    #[must_use]
    pub fn host(&self) -> &ProcessHost {
        self.adapter.host()
    }

    /// Returns the profile of the adapter.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the capabilities of the adapter.
    #[must_use]
    pub fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// Returns the event queue to which CQs are bound.
    #[must_use]
    pub fn eqn(&self) -> Eqn {
        self.eqn
    }

    /// Returns queue pair 1.
    #[must_use]
    pub fn gsi(&self) -> &Gsi {
        &self.gsi
    }

    /// Returns the CQ that XRC targets name, though none of their work completes there.
    #[must_use]
    pub fn idle_cqn(&self) -> Cqn {
        self.gsi.send_cqn()
    }

    /// Sets an entry of the GID table.
    ///
    /// # Errors
    /// The adapter's refusal.
    pub fn set_gid(&self, index: u16, gid: [u8; 16]) -> Result<(), Errno> {
        let mac = self.adapter.mac().0;
        self.command::<command::SetGid>(&SetGid::set(index, gid, mac, NO_VLAN))
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The adapter's refusal, as the kernel driver returns it.
    pub fn command<C: Command>(&self, params: &C::Params) -> Result<C::Reply, Errno> {
        self.execute::<C>(&mut self.admin.lock(), params)
    }

    /// Sets attributes of a QP.
    ///
    /// # Errors
    /// The adapter's refusal.
    pub fn modify_qp(&self, qpn: Qpn, mask: AttrMask, attr: &Attr) -> Result<(), Errno> {
        let mut admin = self.admin.lock();
        words::write(self.host().driver(), BUFFER, attr.as_bytes()).ok_or(Errno::IO)?;
        let params = ModifyQp::new(qpn, mask.bits(), driver_addr(BUFFER));
        self.execute::<command::ModifyQp>(&mut admin, &params)
    }

    /// Returns the attributes of a QP.
    ///
    /// # Errors
    /// The adapter's refusal.
    pub fn query_qp(&self, qpn: Qpn) -> Result<Attr, Errno> {
        self.filled::<command::QueryQp, _>(|addr, _| QueryQp::new(qpn, addr))
    }

    /// Takes the next event, if there is one: its kind, and the number of its object.
    #[must_use]
    pub fn event(&self) -> Option<(Kind, u32)> {
        let mut events = self.events.lock();
        events.iter_mut().find_map(|queue| queue.poll(self.adapter.host()))
    }

    /// Executes a command that fills a buffer.
    fn filled<C: Command, T: FromBytes + IntoBytes>(
        &self,
        params: impl FnOnce(vrnic_abi::GuestAddr, u32) -> C::Params,
    ) -> Result<T, Errno> {
        let mut admin = self.admin.lock();
        let len = u32::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
        self.execute::<C>(&mut admin, &params(driver_addr(BUFFER), len))?;
        let mut value = T::new_zeroed();
        words::read(self.host().driver(), BUFFER, value.as_mut_bytes()).ok_or(Errno::IO)?;
        Ok(value)
    }

    fn execute<C: Command>(
        &self,
        admin: &mut AdminQueue,
        params: &C::Params,
    ) -> Result<C::Reply, Errno> {
        let index = admin.post(self.host(), C::OPCODE as u16, padded(params)?)?;
        self.write(regs::ADMIN_SQ_PI, index);
        let start = Instant::now();
        let completion = loop {
            if let Some(completion) = admin.poll(self.host()) {
                break completion;
            }
            // A rule for faults may hold it back.
            if start.elapsed() > LIMIT {
                return Err(Errno::IO);
            }
            std::thread::sleep(Duration::from_millis(1));
            self.adapter.control();
        };
        match Status::from_raw(completion.status.get()) {
            Some(Status::Ok) => {}
            Some(status) => return Err(Errno::from_raw_os_error(status.errno().into())),
            None => return Err(Errno::IO),
        }
        let (reply, _) = C::Reply::read_from_prefix(&completion.result).map_err(|_| Errno::IO)?;
        Ok(reply)
    }

    fn write(&self, offset: u32, value: u32) {
        if self.adapter.write_register(offset, value) {
            self.adapter.control();
        }
    }

    fn write_address(&self, offset: u32, addr: u64) {
        // CAST: takes each half.
        self.write(offset, addr as u32);
        self.write(offset + 4, (addr >> 32) as u32);
    }
}

impl Commands for Driver {
    fn host(&self) -> &ProcessHost {
        self.host()
    }

    fn eqn(&self) -> Eqn {
        self.eqn
    }

    fn command<C: Command>(&self, params: &C::Params) -> Result<C::Reply, Errno> {
        self.command::<C>(params)
    }

    fn modify_qp(&self, qpn: Qpn, mask: AttrMask, attr: &Attr) -> Result<(), Errno> {
        self.modify_qp(qpn, mask, attr)
    }
}

/// Returns limits with room for the driver's own objects.
fn with_own(limits: Limits) -> Limits {
    let most = Limits::default();
    let plus = |limit: u32, own: u32, most: u32| limit.saturating_add(own).min(most);
    Limits {
        cq: plus(limits.cq, gsi::CQS, most.cq),
        pd: plus(limits.pd, gsi::PDS, most.pd),
        mr: plus(limits.mr, gsi::MRS, most.mr),
        ..limits
    }
}

/// Lowers capabilities to those of a profile.
fn lower(caps: &mut DeviceCaps, limits: &Maxima) {
    // The queues of the adapter have powers of two.
    let wr = limits.wr.map(|wr| wr.checked_ilog2().map_or(0, |log| 1 << log));
    for (place, limit) in [
        (&mut caps.max_sge, limits.sge),
        (&mut caps.max_inline, limits.inline),
        (&mut caps.max_wr, wr),
        (&mut caps.max_rd_atomic, limits.rd_atomic),
        (&mut caps.max_mw, limits.mw),
        (&mut caps.max_srq, limits.srq),
        (&mut caps.max_xrcd, limits.xrcd),
    ] {
        *place = limit.map_or(place.get(), |limit| limit.min(place.get())).into();
    }
}

/// Returns the parameters of a command, followed by zeroes.
fn padded(params: &(impl IntoBytes + Immutable)) -> Result<[u8; PARAMS_LEN], Errno> {
    let mut bytes = [0; PARAMS_LEN];
    params.write_to_prefix(&mut bytes).map_err(|_| Errno::INVAL)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapter::host::system_clock;
    use crate::memory::spaces::Spaces;

    fn driver() -> Driver {
        let spaces = Arc::new(Spaces::default());
        let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
        Driver::new("vrnic0", MacAddr([2, 0, 0, 0, 0, 1]), host, Driver::most(), &Arc::default())
            .expect("up")
    }

    #[test]
    fn an_adapter_comes_up_and_executes_commands() {
        let driver = driver();
        assert!(driver.caps().max_qp.get() > 1000);
        for _ in 0..100 {
            let context = driver.command::<command::AllocContext>(&()).expect("a context");
            let pdn = driver.command::<command::AllocPd>(&context).expect("a PD");
            assert_eq!(driver.command::<command::FreeContext>(&context), Err(Errno::BUSY));
            driver.command::<command::FreePd>(&pdn).expect("a PD");
            driver.command::<command::FreeContext>(&context).expect("a context");
        }
    }

    #[test]
    fn refusals_are_errors_of_the_kernel() {
        let driver = driver();
        assert_eq!(driver.command::<command::FreePd>(&999.into()), Err(Errno::NOENT));
        assert!(driver.query_qp(5.into()).is_err());
        assert!(driver.event().is_none());
    }
}
