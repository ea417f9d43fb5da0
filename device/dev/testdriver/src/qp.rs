//! Parameters and attributes of QPs.

use vrnic_abi::admin::{CreateQp, QpFlags, QpOptions, TagForm};
use vrnic_abi::qp::{Access, AddressVector, Attr, AttrMask, NO_VLAN, State, Type};
use vrnic_abi::rq::HEADER_LEN;
use vrnic_abi::sq::Sge;

use crate::bus::Bus;
use crate::guest::Guest;

/// The first PSN of both directions of a connection.
pub const PSN: u32 = 17;

/// Full rights on a region.
pub const ALL: u32 = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .bits();

/// The attributes that an RC QP needs for Reset to Init (IBTA volume 1, table 91).
pub const INIT: AttrMask =
    AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::ACCESS_FLAGS);
/// The attributes for Init to RTR.
pub const RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
/// The attributes for RTR to RTS.
pub const RTS: AttrMask = AttrMask::STATE
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// The states of a connection, with their attributes.
pub const TO_RTS: [(State, AttrMask); 3] =
    [(State::Init, INIT), (State::Rtr, RTR), (State::Rts, RTS)];

/// The attributes among these that unreliable connections do not have.
pub(crate) const RELIABLE: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC
    .union(AttrMask::MIN_RNR_TIMER)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// log2 of the receive stride.
pub(crate) const RECV_LOG_STRIDE: u8 = 9;
/// The number of segments for which this stride has room.
pub(crate) const RECV_SGES: u32 = ((1 << RECV_LOG_STRIDE) - HEADER_LEN) / size_of::<Sge>() as u32;

/// Sizes and kinds of an endpoint's objects.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Length of the region in bytes.
    pub region: u64,
    /// log2 of the entries of both CQs.
    pub log_cqes: u8,
    /// For holding CQs, the number of free entries at which they report that few are left.
    pub holding: Option<u32>,
    /// True for CQs that lose entries when they are full.
    pub ignore_overrun: bool,
    /// log2 of the entries of both queues.
    pub log_wqes: u8,
    /// log2 of the send stride.
    pub log_stride: u8,
    /// True if the send queue lies in device memory.
    pub in_device: bool,
    /// The MSI-X vector of the CQs.
    pub vector: u16,
    /// True if the objects belong to the kernel, false if they belong to a separate user context.
    pub kernel: bool,
    /// Type of the QP.
    pub kind: Type,
    /// More flags of the QP.
    pub flags: QpFlags,
    /// The options of the QP.
    pub options: QpOptions,
    /// Position of command keys in its messages.
    pub tags: (TagForm, u32),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            region: REGION,
            log_cqes: 6,
            holding: None,
            ignore_overrun: false,
            log_wqes: LOG_WQES,
            log_stride: 9,
            in_device: false,
            vector: 1,
            kernel: false,
            kind: Type::Rc,
            flags: QpFlags::empty(),
            options: QpOptions::empty(),
            tags: (TagForm::None, 0),
        }
    }
}

/// Default length of the region of an endpoint in bytes.
pub const REGION: u64 = 8 << 20;
/// Default log2 of the entries of both queues.
pub const LOG_WQES: u8 = 4;

impl Setup {
    /// Returns the parameters of a QP with both rings in fresh memory, without its PD, CQs and UAR.
    pub fn qp<B: Bus>(&self, guest: &Guest<B>) -> CreateQp {
        let (rq_table, in_device) =
            (guest.ram().alloc(1 << (self.log_wqes + RECV_LOG_STRIDE)), self.in_device);
        let sq_table =
            if in_device { 0 } else { guest.ram().alloc(1 << (self.log_wqes + self.log_stride)) };
        let flags = if in_device { QpFlags::SQ_IN_DEVICE } else { QpFlags::empty() };
        CreateQp {
            sq_table: sq_table.into(),
            rq_table: rq_table.into(),
            sq_page_shift: if in_device { 0 } else { 12 },
            rq_page_shift: 12,
            sq_log_size: self.log_wqes,
            sq_log_stride: self.log_stride,
            rq_log_size: self.log_wqes,
            rq_log_stride: RECV_LOG_STRIDE,
            qp_type: self.kind as u8,
            flags: (flags | self.flags).bits(),
            options: self.options.bits(),
            tag_form: self.tags.0 as u8,
            tag_offset: self.tags.1.into(),
            ..CreateQp::default()
        }
    }
}

/// Returns the link-local GID of the port with this MAC (RFC 4291, appendix A).
#[must_use]
pub const fn link_local([a, b, c, d, e, f]: [u8; 6]) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns the attributes of a QP that gives its peer all rights.
#[must_use]
pub fn attributes(mac: [u8; 6], qpn: u32) -> Attr {
    Attr {
        path_mtu: 5,
        port: 1,
        access: ALL.into(),
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 3,
        rnr_retry: 2,
        rq_psn: PSN.into(),
        sq_psn: PSN.into(),
        dest_qpn: qpn.into(),
        av: AddressVector {
            dgid: link_local(mac),
            dmac: mac,
            vlan: NO_VLAN.into(),
            hop_limit: 64,
            ..AddressVector::default()
        },
        ..Attr::default()
    }
}
