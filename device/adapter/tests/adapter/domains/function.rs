//! A function with an object of each kind, and a picture of its state.

use vrnic_abi::admin::{MwType, STAT_NAMES, command};
use vrnic_abi::direct::Direction;
use vrnic_abi::qp::Type;
use vrnic_abi::uar::UAR_LEN;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::Setup;

use crate::bus::{CompletionQueue, Endpoint, Guest, SharedQueue};
use crate::direct::{armed, state};
use crate::memory::keys::{BINDABLE, PAGE, alloc_mw};
use crate::messages::multicast::attach;

/// The range for which each function has a transfer.
pub(super) const RANGE: u32 = 3;
/// Number of UARs whose pages are part of a picture. No test allocates more.
const UARS: u64 = 24;

/// The numbers of the objects of a function, one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) context: u32,
    pub(super) uar: u32,
    pub(super) pdn: u32,
    pub(super) eqn: u32,
    pub(super) cqn: u32,
    pub(super) srqn: u32,
    pub(super) xrcdn: u32,
    pub(super) qpn: u32,
    /// A datagram QP, which is a member of `group`.
    pub(super) datagram_qpn: u32,
    pub(super) group: [u8; 16],
    pub(super) key: u32,
    pub(super) window: u32,
    /// The slot of the QP in the page of `uar`.
    pub(super) slot: u32,
}

/// A function, and one object of each kind.
pub(super) struct Function {
    pub(super) guest: Guest,
    pub(super) end: Endpoint,
    pub(super) numbers: Numbers,
}

impl Function {
    /// Creates an object of each kind, after this many others of the same kind, so that their
    /// numbers differ from those of a function with fewer objects.
    pub(super) fn new(guest: Guest, others: u32, group: [u8; 16]) -> Self {
        let setup = Setup { region: 8 * PAGE, ..Setup::default() };
        let xrcd = || guest.command::<command::AllocXrcd>(&()).expect("XRCD").get();
        for _ in 0..others {
            let other = Endpoint::new(&guest, setup);
            assert_ne!(SharedQueue::new(&other).srqn, 0);
            xrcd();
        }
        let setup = Setup { region: 64 * PAGE, ..setup };
        let end = Endpoint::new(&guest, setup);
        // More slots than a group of doorbells has.
        for _ in 0..2 * others {
            let cq = CompletionQueue::create(&guest, end.uar, end.eqn, 0);
            assert!(cq.is_ok());
        }
        let qp = end.beside(|_| {});
        let datagrams = end.beside(|params| params.qp_type = Type::Ud as u8);
        attach(&guest, datagrams.qpn, group).expect("ATTACH_MCAST");
        let key = guest.reg_flat(end.pdn, BINDABLE, end.buffer, PAGE).expect("REG_MR");
        let window = alloc_mw(&guest, end.pdn, MwType::Type2);
        let srq = SharedQueue::new(&end);
        let numbers = Numbers {
            context: end.context,
            uar: end.uar,
            pdn: end.pdn,
            eqn: end.eqn,
            cqn: end.send_cq.cqn,
            srqn: srq.srqn,
            xrcdn: xrcd(),
            qpn: qp.qpn,
            datagram_qpn: datagrams.qpn,
            group,
            key,
            window,
            slot: qp.slot,
        };
        Self { guest, end, numbers }
    }

    /// Programs a range for the function's QP.
    pub(super) fn arm(&self) {
        armed(&self.end, RANGE, Direction::Write, 64);
    }
}

/// The state of a function: all that its guest can see without a command, and what INSPECT lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    counters: Vec<(&'static str, u64)>,
    objects: [String; 6],
    memory: Vec<u8>,
    doorbells: Vec<u8>,
}

impl Picture {
    pub(crate) fn of(guest: &Guest) -> Self {
        let adapter = &guest.adapter;
        let length = guest.ram().alloc(1) - BASE;
        let mut doorbells = vec![0; (UARS * u64::from(UAR_LEN)) as usize];
        guest.bar().read(0, &mut doorbells).expect("the pages of UARs");
        Self {
            counters: STAT_NAMES.into_iter().zip(adapter.stats().values()).collect(),
            objects: [
                format!("{:?}", adapter.counts()),
                format!("{:?}", adapter.qp_records(0, 1000)),
                format!("{:?}", adapter.cq_records(0, 1000)),
                format!("{:?}", adapter.eq_records(0, 1000)),
                format!("{:?}", adapter.srq_records(0, 1000)),
                format!("{:?}", adapter.key_records(0, 1000)),
            ],
            memory: guest.ram().read(BASE, length as usize),
            doorbells,
        }
    }

    /// Checks that the function is as it was, except for these counters.
    #[track_caller]
    pub(crate) fn check_except(&self, guest: &Guest, what: &str, counters: &[&str]) {
        let mut now = Self::of(guest);
        now.memory.truncate(self.memory.len());
        for ((name, value), (_, before)) in now.counters.iter_mut().zip(&self.counters) {
            if counters.contains(name) {
                *value = *before;
            }
        }
        assert_eq!(now.counters, self.counters, "{what}");
        assert_eq!(now.objects, self.objects, "{what}");
        assert!(now.memory == self.memory, "{what}: guest memory has changed");
        assert!(now.doorbells == self.doorbells, "{what}: doorbells have changed");
    }

    /// Returns whether the function has the same keys as before, in the same states.
    pub(crate) fn has_keys_of(&self, guest: &Guest) -> bool {
        let [.., before] = &self.objects;
        *before == format!("{:?}", guest.adapter.key_records(0, 1000))
    }

    /// Checks that the function is as it was.
    #[track_caller]
    pub(crate) fn check(&self, guest: &Guest, what: &str) {
        self.check_except(guest, what, &[]);
    }
}

/// Returns the registers of the range that a function has armed.
pub(super) fn range_state(guest: &Guest) -> (u8, u8, u32) {
    state(guest, RANGE)
}
