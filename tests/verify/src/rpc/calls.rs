//! The calls of an agent. Each call is a struct of its parameters with the type of its answer;
//! objects are named by handles, which the agent gives out.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::model::{
    AsyncEvent, Bind, Change, CommandWr, DeviceInfo, Path, QpAttr, QpCap, QpExtras, RecvWr, SendWr,
    SrqAttr, Wc,
};

/// A call and its answer.
pub(crate) trait Call: Into<Request> {
    /// The agent's answer.
    type Answer: DeserializeOwned;
}

/// Why an agent did not do what it was asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The errno, when a verb failed.
    pub(crate) errno: Option<i32>,
    /// For people.
    pub(crate) text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty),* $(,)? }
        -> $answer:ty;)*) => {
        /// Any call, as it travels.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) enum Request {
            $($name($name),)*
        }
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Serialize, Deserialize)]
            pub(crate) struct $name { $($(#[$fdoc])* pub(crate) $field: $type,)* }

            impl From<$name> for Request {
                fn from(call: $name) -> Self {
                    Self::$name(call)
                }
            }

            impl Call for $name {
                type Answer = $answer;
            }
        )*
    };
}

calls! {
    /// Opens the device: the first call to a fresh agent.
    Open { device: Option<String> } -> DeviceInfo;
    /// Reads the attributes of the device and its port again.
    Query {} -> DeviceInfo;
    /// True if there is a port of that number.
    QueryPort { port: u8 } -> ();
    /// An entry of the GID table.
    QueryGid { index: i32 } -> [u8; 16];
    /// An entry of the table of partition keys.
    QueryPkey { index: i32 } -> u16;
    /// Destroys every object, dependants first; fails if any refuses.
    Reset {} -> ();
    /// CQs and QPs made from now on have the extended interfaces, until the next reset.
    UseExtended {} -> ();
    /// The counters of the port, by name.
    Counters {} -> BTreeMap<String, u64>;
    /// Reads the clocks.
    Clocks {} -> Times;
    /// Lets the agent lock so much memory and no more, as it would be without privileges, from now
    /// on.
    LimitMemory { bytes: u64 } -> ();
    /// Ends the agent at once, without tidying up.
    Crash {} -> ();

    /// Allocates a PD.
    AllocPd {} -> u32;
    /// Allocates a thread domain.
    AllocTd {} -> u32;
    /// Frees a thread domain.
    DeallocTd { td: u32 } -> ();
    /// Allocates a PD that is another one, for one thread.
    AllocParent { pd: u32, td: u32 } -> u32;
    /// Frees a PD.
    DeallocPd { pd: u32 } -> ();
    /// Maps memory, zeroed.
    AllocBuffer { len: u64, misalign: u64 } -> BufferInfo;
    /// Creates a buffer as a DMA buffer.
    AllocDmabuf { len: u64, misalign: u64 } -> BufferInfo;
    /// Makes a buffer read only for this process.
    ProtectBuffer { buffer: u32 } -> ();
    /// Unmaps a buffer.
    FreeBuffer { buffer: u32 } -> ();
    /// Fills a range with pseudo-random bytes.
    Fill { buffer: u32, offset: u64, len: u64, seed: u64, position: u64 } -> ();
    /// Compares a range with pseudo-random bytes; fails at the first difference.
    Compare { buffer: u32, offset: u64, len: u64, seed: u64, position: u64 } -> ();
    /// Fails if a canary of any buffer was touched.
    CheckCanaries {} -> ();
    /// Stores bytes.
    Write { buffer: u32, offset: u64, bytes: Vec<u8> } -> ();
    /// Loads bytes.
    Read { buffer: u32, offset: u64, len: u64 } -> Vec<u8>;
    /// Adds to a word with the processor's atomic instruction, over and over.
    CpuFetchAdd { buffer: u32, offset: u64, add: u64, count: u64 } -> ();
    /// Waits until the byte at the end of a range is the right one, and at once compares the rest.
    SpinCompare { buffer: u32, offset: u64, len: u64, seed: u64, timeout_ms: u64 } -> ();

    /// Registers a range of the agent's addresses for one touch.
    RegOneTouch { pd: u32, addr: u64, length: u64, access: u32 } -> MrInfo;
    /// Registers all of a buffer by the DMA buffer that it is out of.
    RegDmabuf { pd: u32, buffer: u32, access: u32 } -> MrInfo;
    /// Registers a range of the agent's addresses.
    RegMr { pd: u32, addr: u64, length: u64, access: u32 } -> MrInfo;
    /// Changes a region; answers its keys afterwards.
    ReregMr { mr: u32, pd: Option<u32>, change: Change } -> MrInfo;
    /// Deregisters a region.
    DeregMr { mr: u32 } -> ();

    /// Allocates a window of type 1 or 2.
    AllocMw { pd: u32, mw_type: u32 } -> MwInfo;
    /// Frees a window.
    DeallocMw { mw: u32 } -> ();
    /// Posts a binding by the verb (type 1) or direct verb (any type); answers the key that it has
    /// then.
    BindMw { qp: u32, mw: u32, mr: Option<u32>, bind: Bind } -> u32;
    /// Posts a binding by a work request, with the key `rkey`.
    PostBind { qp: u32, mw: u32, rkey: u32, mr: Option<u32>, bind: Bind } -> ();

    /// Opens a completion channel.
    CreateChannel {} -> u32;
    /// Closes a completion channel.
    DestroyChannel { channel: u32 } -> ();
    /// Creates a CQ.
    CreateCq { cqe: i32, channel: Option<u32>, vector: i32 } -> CqInfo;
    /// Creates a CQ (a direct verb), on a vector of the driver's choice if `any_vector` says so;
    /// answers the vector, too.
    CreateCqDirect { cqe: i32, channel: Option<u32>, vector: i32, any_vector: bool }
        -> (CqInfo, u32);
    /// Gives a CQ room for so many entries; answers for how many it has.
    ResizeCq { cq: u32, cqe: i32 } -> u32;
    /// Destroys a CQ.
    DestroyCq { cq: u32 } -> ();
    /// Arms a CQ.
    Arm { cq: u32, solicited_only: bool } -> ();
    /// Sets interrupt moderation: completions, and µs.
    Moderate { cq: u32, count: u16, period: u16 } -> ();
    /// Waits for a completion event; answers the CQ's handle.
    WaitChannel { channel: u32, timeout_ms: u64 } -> Option<u32>;
    /// Polls until `count` completions are there or the time is over; answers what there is.
    Poll { cq: u32, count: usize, timeout_ms: u64 } -> Vec<Wc>;

    /// Creates an SRQ.
    CreateSrq { pd: u32, max_wr: u32, max_sge: u32 } -> SrqInfo;
    /// Changes the size of an SRQ, or arms its limit event.
    ModifySrq { srq: u32, max_wr: Option<u32>, limit: Option<u32> } -> ();
    /// Reads the attributes of an SRQ.
    QuerySrq { srq: u32 } -> SrqAttr;
    /// Destroys an SRQ.
    DestroySrq { srq: u32 } -> ();
    /// Posts receive work requests to an SRQ.
    PostSrqRecv { srq: u32, requests: Vec<RecvWr> } -> Posted;
    /// Opens the XRC domain of a file, or one of its own; `flags` are `O_CREAT` and `O_EXCL`.
    OpenXrcd { path: Option<String>, flags: i32 } -> u32;
    /// Closes an XRC domain.
    CloseXrcd { xrcd: u32 } -> ();
    /// Creates an SRQ for XRC, which completes to `cq`.
    CreateXrcSrq { pd: u32, xrcd: u32, cq: u32, max_wr: u32, max_sge: u32 } -> XrcSrqInfo;
    /// Creates an XRC target.
    CreateTarget { xrcd: u32 } -> QpInfo;
    /// Opens an XRC target by its number.
    OpenTarget { xrcd: u32, qpn: u32 } -> QpInfo;
    /// Creates a QP.
    CreateQp {
        pd: u32, send_cq: u32, recv_cq: u32, qp_type: u32, cap: QpCap, signal_all: bool,
        extras: Option<QpExtras>, srq: Option<u32>,
    } -> QpInfo;
    /// Sets attributes of a QP.
    ModifyQp { qp: u32, attr: QpAttr, mask: u32 } -> ();
    /// Reads the attributes of a QP.
    QueryQp { qp: u32 } -> QpAttr;
    /// Creates an address handle.
    CreateAh { pd: u32, path: Path } -> u32;
    /// Destroys an address handle.
    DestroyAh { ah: u32 } -> ();
    /// Lets a QP receive what is sent to a multicast group.
    AttachMcast { qp: u32, gid: [u8; 16], lid: u16 } -> ();
    /// Detaches from a multicast group.
    DetachMcast { qp: u32, gid: [u8; 16], lid: u16 } -> ();
    /// Destroys a QP.
    DestroyQp { qp: u32 } -> ();
    /// Posts send work requests, and optionally zeroes a range as soon as that has returned.
    PostSend { qp: u32, requests: Vec<SendWr>, wipe: Option<(u32, u64, u64)> } -> Posted;
    /// Posts send work requests together by the extended interface, or aborts that at the end; if
    /// it fails, none is posted.
    PostTogether { qp: u32, requests: Vec<SendWr>, abort: bool } -> ();
    /// Posts receive work requests.
    PostRecv { qp: u32, requests: Vec<RecvWr> } -> Posted;
    /// Posts a command (a direct verb).
    PostCommand { qp: u32, command: CommandWr } -> ();
    /// The next asynchronous event.
    WaitAsync { timeout_ms: u64 } -> Option<AsyncEvent>;

    /// Posts copies of one signaled work request, `depth` at a time, until `count` completed.
    /// The local address of copy `i` moves by `i % depth * step`.
    Stream {
        qp: u32, cq: u32, request: SendWr, count: u64, depth: u64, step: u64, timeout_ms: u64,
    } -> ();
    /// Streams as `Stream` does, and resizes the CQ after each poll that found something; answers
    /// how often.
    StreamResizing { stream: Stream, sizes: Vec<i32> } -> u64;
    /// Keeps `depth` receives without buffers posted and takes `count` completions, giving the CQ
    /// ever other sizes as above; answers how often.
    ReceiveResizing {
        qp: u32, cq: u32, count: u64, depth: u64, sizes: Vec<i32>, timeout_ms: u64,
    } -> u64;
    /// Fetch-and-add `count` times, `depth` at a time; answers the values fetched. The results land
    /// in the 8-byte slots of `buffer`.
    FetchAddMany {
        qp: u32, cq: u32, buffer: u32, lkey: u32, raddr: u64, rkey: u32, add: u64, count: u64,
        depth: u64, timeout_ms: u64,
    } -> Vec<u64>;
    /// Increments a word by compare-and-swap until `count` swaps succeeded; answers the attempts.
    CasIncrement {
        qp: u32, cq: u32, buffer: u32, lkey: u32, raddr: u64, rkey: u32, count: u64,
        timeout_ms: u64,
    } -> u64;

    /// Registers a range whose key a program can guess, with an answer that cannot be written; when
    /// the kernel begins to write that, posts a binding to the guessed key. Answers the errno, and
    /// what became of the binding.
    RegMrFaulting { pd: u32, addr: u64, length: u64, access: u32, guess: u32, window: PostBind, cq: u32 }
        -> (Option<i32>, Vec<Wc>);
    /// Gives a CQ room for so many entries, by a command whose answer cannot be written. Answers
    /// the errno.
    ResizeCqFaulting { cq: u32, buffer: u32, log_size: u8 } -> Option<i32>;
    /// Writes garbage into what the process shares with the device, for some time.
    Scribble { target: Target, seed: u64, duration_ms: u64 } -> Scribbled;
}

/// Targets for garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Target {
    /// Doorbell pages and device-resident queues.
    Device,
    /// Rings in guest memory, while all doorbells are rung with random indices.
    Rings,
    /// Rings, with entries that are nearly right; the doorbells are rung once.
    Entries,
}

/// Numbers of what was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scribbled {
    /// Mappings that were written to.
    pub(crate) mappings: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Stores of 8 bytes.
    pub(crate) stores: u64,
}

/// Two clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Of completions.
    pub(crate) raw: u64,
    /// The time of day.
    pub(crate) day: u64,
}

/// A new buffer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct BufferInfo {
    pub(crate) buffer: u32,
    pub(crate) addr: u64,
}

/// A new region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MrInfo {
    pub(crate) mr: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// A new window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MwInfo {
    pub(crate) mw: u32,
    pub(crate) rkey: u32,
}

/// A new CQ.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CqInfo {
    pub(crate) cq: u32,
    /// Entries granted.
    pub(crate) capacity: u32,
}

/// A new SRQ.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SrqInfo {
    pub(crate) srq: u32,
    /// Sizes granted.
    pub(crate) attr: SrqAttr,
}

/// A new SRQ for XRC.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct XrcSrqInfo {
    /// Its number in requests.
    pub(crate) number: u32,
    pub(crate) info: SrqInfo,
}

/// A new QP.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct QpInfo {
    pub(crate) qp: u32,
    pub(crate) qpn: u32,
    /// Sizes granted.
    pub(crate) cap: QpCap,
}

/// Result of posting a chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Posted {
    /// Work requests that went in.
    pub(crate) count: usize,
    /// Why the next one did not.
    pub(crate) refused: Option<Failure>,
}
