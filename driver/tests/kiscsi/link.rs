// SPDX-License-Identifier: GPL-2.0
//! A stream queue pair of the adapter in the iSCSI mode, and the memory that the adapter uses for
//! it.

use core::{
    mem::{self, ManuallyDrop, MaybeUninit},
    ptr::NonNull,
};

use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_void,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, Mutex},
};

use crate::{
    bindings,
    cq::{RawCq, free_cq},
    event::{Event, Place, event},
    kclient::{
        attached::Attached,
        bindings as ib,
        mapped::{Mapped, Part},
        memory::Memory,
        pd::{Device, Pd},
    },
    login::Terms,
    pdu::{self, Header},
    socket::Socket,
    waker::Waker,
};

/// Commands that the target executes at a time, at most.
pub(crate) const COMMANDS: usize = 64;
/// PDUs of other kinds that leave at a time, at most.
pub(crate) const CONTROLS: usize = 16;
const RECEIVES: usize = 256;
/// Bytes of a receive: headers, and the sense data of a response.
const RECEIVE_LEN: usize = 512;
/// Bytes of a place for the header of a PDU that leaves.
const HEADER_PLACE: usize = 64;
/// Pages of the buffer of a command, at most: a page of their addresses.
const MAX_PAGES: u32 = (PAGE_SIZE / size_of::<u64>()) as u32;
/// Completions that are taken at a time.
const BATCH: usize = 16;

/// The queue pair of a connection.
///
/// # Invariants
///
/// `cq` and `qp` are objects of the device of `pd`, which this type owns. `qp` is destroyed if and
/// only if `is_open` is false. `waker` is the foreign form of an `Arc<Waker>`.
#[pin_data(PinnedDrop)]
pub(crate) struct Link {
    cq: NonNull<ib::ib_cq>,
    qp: NonNull<ib::ib_qp>,
    #[pin]
    is_open: Mutex<bool>,
    waker: *mut c_void,
    pd: Arc<Pd>,
    receives: Arc<Mapped>,
    headers: Arc<Mapped>,
    controls: Arc<Mapped>,
    lists: Arc<Mapped>,
}

// SAFETY: the core allows its objects to be used and destroyed by any thread; an `Arc<Waker>` may
// be sent.
unsafe impl Send for Link {}
// SAFETY: posting, polling and the driver's functions may be called by several threads at a time.
unsafe impl Sync for Link {}

impl Link {
    /// Creates a queue pair for a session with these terms, and posts its receives.
    pub(crate) fn new(
        device: &Arc<Attached>,
        terms: &Terms,
        waker: Arc<Waker>,
    ) -> Result<Arc<Self>> {
        let dyn_device: Arc<dyn Device> = device.clone();
        let pd = Pd::new(dyn_device.clone())?;
        let map = |bytes: usize| {
            let memory = Memory::new(bytes.div_ceil(PAGE_SIZE), PAGE_SIZE)?;
            Mapped::new(dyn_device.clone(), memory)
        };
        let (receives, headers) = (map(RECEIVES * RECEIVE_LEN)?, map(COMMANDS * HEADER_PLACE)?);
        let (controls, lists) = (map(CONTROLS * HEADER_PLACE)?, map(COMMANDS * PAGE_SIZE)?);
        let raw_cq = RawCq::new(device, RECEIVES + COMMANDS + CONTROLS, waker)?;
        let qp = create_qp(&pd, raw_cq.get())?;
        let (cq, waker) = raw_cq.into_parts();
        // INVARIANT: both were created just now, for this caller. If this fails, it frees nothing
        // that is in use, and leaks both.
        let this = Arc::pin_init(
            pin_init!(Self {
                cq,
                qp,
                is_open <- new_mutex!(true, "kiscsi::Link"),
                waker,
                pd,
                receives,
                headers,
                controls,
                lists,
            }),
            GFP_KERNEL,
        )?;
        this.set_terms(terms)?;
        (0..RECEIVES).try_for_each(|index| this.receive(index))?;
        Ok(this)
    }

    fn set_terms(&self, terms: &Terms) -> Result {
        let iscsi = ib::vrnic_iscsi {
            max_receive: terms.max_receive,
            max_send: terms.max_send,
            max_burst: terms.max_burst,
            header_digest: terms.header_digest,
            data_digest: terms.data_digest,
            disk: true,
        };
        // SAFETY: the queue pair is alive, as it is open; the struct is valid.
        to_result(unsafe { ib::vrnic_stream_iscsi(self.qp.as_ptr(), &iscsi) })
    }

    /// Gives the connection of a socket to the queue pair.
    ///
    /// # Errors
    ///
    /// Returns the errors of `vrnic_stream_attach`, with the socket.
    pub(crate) fn attach(&self, socket: Socket) -> Result<(), (Socket, Error)> {
        // SAFETY: the queue pair is alive, as it is open. The driver owns the socket if and only if
        // the function succeeds.
        unsafe {
            socket.give(|socket| to_result(ib::vrnic_stream_attach(self.qp.as_ptr(), socket)))
        }
    }

    /// Posts a receive, unless the queue pair has gone. To be called for a receive that is not
    /// posted.
    pub(crate) fn receive(&self, index: usize) -> Result {
        let part = Part::new(&self.receives, index * RECEIVE_LEN..(index + 1) * RECEIVE_LEN)?;
        let mut sge = self.segment(&part)?;
        let wr = ib::ib_recv_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: ib::ib_recv_wr__bindgen_ty_1 {
                wr_id: ManuallyDrop::new(Place::Receive(index).name()),
            },
            sg_list: &mut sge,
            num_sge: 1,
        };
        let is_open = self.is_open.lock();
        match *is_open {
            // SAFETY: the queue pair is alive, as it is open. The list is copied; its memory is
            // kept until the queue pair has gone.
            true => to_result(unsafe { ib::kclient_post_recv(self.qp.as_ptr(), &wr) }),
            false => Err(ENOTCONN),
        }
    }

    /// Returns what a receive has at an offset.
    pub(crate) fn received(&self, index: usize, at: usize, into: &mut [u8]) -> Result {
        if at + into.len() > RECEIVE_LEN {
            return Err(EINVAL);
        }
        self.receives.read(index * RECEIVE_LEN + at, into)
    }

    /// Returns the list of the pages of a command, and the number of its entries. Only the command
    /// of this place may be posted with it.
    pub(crate) fn list(&self, index: usize) -> Result<(*mut u64, u32)> {
        let start = self.lists.starts().nth(index).ok_or(EINVAL)?;
        Ok((start.cast(), MAX_PAGES))
    }

    /// Posts a command, whose pages are in its list. Returns the Command ID.
    ///
    /// # Safety
    ///
    /// The queue pair must be open until this returns. The place must be free, and the pages of the
    /// list must be mapped for the device until the command has ended, or the link was closed.
    pub(crate) unsafe fn command(
        &self,
        index: usize,
        header: &Header,
        io: &bindings::kiscsi_io,
    ) -> Result<u32> {
        let at = index * HEADER_PLACE;
        self.headers.write(at, &header.0)?;
        let message = Part::new(&self.headers, at..at + header.0.len())?;
        let list = Part::new(&self.lists, index * PAGE_SIZE..(index + 1) * PAGE_SIZE)?;
        let mut access = 0;
        for (is_used, right) in [
            (io.reads, ib::ib_access_flags_IB_ACCESS_REMOTE_WRITE),
            (io.writes, ib::ib_access_flags_IB_ACCESS_REMOTE_READ),
        ] {
            access |= if is_used { right } else { 0 };
        }
        let command = ib::vrnic_command {
            // CAST: a name in place of a pointer, which is not followed.
            wr_cqe: core::ptr::without_provenance_mut(Place::Command(index).name() as usize),
            message: self.segment(&message)?,
            pages: list.address()?,
            offset: io.offset,
            length: io.length,
            access: access as u32,
        };
        let mut id = 0;
        // SAFETY: the caller promises that the queue pair is open; both structs are valid.
        to_result(unsafe { ib::vrnic_command_post(self.qp.as_ptr(), &command, &mut id) })?;
        Ok(id)
    }

    /// Stores another PDU, of only a header, in a place that is free.
    pub(crate) fn store(&self, index: usize, header: &Header) -> Result {
        self.controls.write(index * HEADER_PLACE, &header.0)
    }

    /// Posts the PDU that was stored in a place.
    ///
    /// # Safety
    ///
    /// The queue pair must be open until this returns, and the PDU must not be posted.
    pub(crate) unsafe fn control(&self, index: usize) -> Result {
        let at = index * HEADER_PLACE;
        let mut sge = self.segment(&Part::new(&self.controls, at..at + pdu::LEN)?)?;
        let wr = ib::ib_send_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: ib::ib_send_wr__bindgen_ty_1 {
                wr_id: ManuallyDrop::new(Place::Control(index).name()),
            },
            sg_list: &mut sge,
            num_sge: 1,
            opcode: ib::ib_wr_opcode_IB_WR_SEND,
            send_flags: ib::ib_send_flags_IB_SEND_SIGNALED,
            ex: ib::ib_send_wr__bindgen_ty_2 { invalidate_rkey: ManuallyDrop::new(0) },
        };
        // SAFETY: the caller promises that the queue pair is open. The list is copied; its memory
        // is kept until the queue pair has gone.
        to_result(unsafe { ib::kclient_post_send(self.qp.as_ptr(), &wr) })
    }

    /// Lets the send queue continue after a command that was refused.
    pub(crate) fn resume(&self) -> Result {
        // SAFETY: a plain C struct of numbers, for which zero is valid.
        let mut attr: ib::ib_qp_attr = unsafe { mem::zeroed() };
        attr.qp_state = ib::ib_qp_state_IB_QPS_RTS;
        let mask = ib::ib_qp_attr_mask_IB_QP_STATE as i32;
        let is_open = self.is_open.lock();
        match *is_open {
            // SAFETY: the queue pair is alive, as it is open; the struct is valid.
            true => to_result(unsafe { ib::ib_modify_qp(self.qp.as_ptr(), &mut attr, mask) }),
            false => Err(ENOTCONN),
        }
    }

    fn segment(&self, part: &Part) -> Result<ib::ib_sge> {
        let length = u32::try_from(part.len())?;
        Ok(ib::ib_sge { addr: part.address()?, length, lkey: self.pd.lkey() })
    }

    /// Ends a command without a response.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it has ended, `ENOTCONN` if the queue pair has gone.
    pub(crate) fn end_command(&self, tag: u32) -> Result {
        let is_open = self.is_open.lock();
        match *is_open {
            // SAFETY: the queue pair is alive, as it is open.
            true => to_result(unsafe { ib::vrnic_command_end(self.qp.as_ptr(), tag) }),
            false => Err(ENOTCONN),
        }
    }

    /// Logs what the adapter has counted.
    pub(crate) fn report(&self) {
        // SAFETY: a plain C struct of numbers, for which zero is valid.
        let mut counters: ib::vrnic_iscsi_counters = unsafe { mem::zeroed() };
        let is_open = self.is_open.lock();
        // SAFETY: the queue pair is alive, as it is open; the struct is valid.
        if *is_open && unsafe { ib::vrnic_stream_count(self.qp.as_ptr(), &mut counters) } == 0 {
            let ib::vrnic_iscsi_counters { received, whole, placed, .. } = counters;
            let ib::vrnic_iscsi_counters { served, data_out, refused, dropped, .. } = counters;
            pr_info!(
                "PDUs: {received} received, {whole} whole, {placed} placed, {served} R2Ts served \
                 by {data_out} PDUs, {refused} refused, {dropped} dropped\n"
            );
        }
    }

    /// Takes completions, and calls `each` with them.
    pub(crate) fn poll(&self, mut each: impl FnMut(Event)) {
        loop {
            // SAFETY: an array of uninitialised places needs no initialisation.
            let mut wcs: [MaybeUninit<ib::ib_wc>; BATCH] =
                unsafe { MaybeUninit::uninit().assume_init() };
            let (cq, first) = (self.cq.as_ptr(), wcs.as_mut_ptr().cast());
            // SAFETY: the CQ is alive by the type's invariants, and there is room.
            let count = unsafe { bindings::kiscsi_poll(cq, BATCH as i32, first) };
            let filled = usize::try_from(count).unwrap_or_default();
            for wc in wcs.iter().take(filled) {
                // SAFETY: the core has filled this many.
                each(event(unsafe { wc.assume_init_ref() }));
            }
            if filled < BATCH {
                // SAFETY: the CQ is alive by the type's invariants.
                match unsafe { bindings::kiscsi_arm(cq) } {
                    missed if missed > 0 => {}
                    _ => return,
                }
            }
        }
    }

    /// Destroys the queue pair. On return the adapter uses none of the memory of commands, and
    /// resets the connection.
    pub(crate) fn close(&self) {
        let mut is_open = self.is_open.lock();
        if mem::take(&mut *is_open) {
            // SAFETY: by the type's invariants the queue pair is this type's own.
            let status = unsafe { ib::ib_destroy_qp_user(self.qp.as_ptr(), core::ptr::null_mut()) };
            if status != 0 {
                pr_err!("a queue pair could not be destroyed: {status}\n");
            }
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Link {
    fn drop(self: Pin<&mut Self>) {
        self.close();
        // SAFETY: by the type's invariants both are this type's own; the queue pair has gone.
        unsafe { free_cq(self.cq, self.waker) };
    }
}

/// Creates the queue pair.
fn create_qp(pd: &Arc<Pd>, cq: NonNull<ib::ib_cq>) -> Result<NonNull<ib::ib_qp>> {
    // SAFETY: a plain C struct of numbers, pointers and optional functions, for which zero is
    // valid.
    let mut attr: ib::ib_qp_init_attr = unsafe { mem::zeroed() };
    attr.qp_type = ib::ib_qp_type_IB_QPT_DRIVER;
    attr.create_flags = ib::VRNIC_QP_REACTIVE;
    attr.send_cq = cq.as_ptr();
    attr.recv_cq = cq.as_ptr();
    attr.sq_sig_type = ib::ib_sig_type_IB_SIGNAL_REQ_WR;
    attr.cap.max_send_wr = u32::try_from(COMMANDS + CONTROLS)?;
    attr.cap.max_recv_wr = u32::try_from(RECEIVES)?;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    let name = pd.device().owner().as_char_ptr();
    // SAFETY: domain and CQ are alive; the core copies the attributes, and the name is static.
    let qp = unsafe { ib::ib_create_qp_kernel(pd.as_raw(), &mut attr, name) };
    NonNull::new(from_err_ptr(qp)?).ok_or(ENOMEM)
}
