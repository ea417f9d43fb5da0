//! The rules that programs are checked against.

/// What is known of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The number in documents and reports, which does not change.
    pub number: u32,
    /// The name in suppressions.
    pub name: &'static str,
    /// A sentence that says what a program must not do.
    pub sentence: &'static str,
    /// What says so.
    pub source: &'static str,
}

/// Declares the rules, each with a number, a name, a sentence and a source.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $number:literal, $name:literal, $sentence:literal,
        $source:literal;)*) => {
        /// A rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// All rules, by number.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// Returns what is known of the rule.
            #[must_use]
            pub const fn info(self) -> Info {
                match self {
                    $(Self::$rule => Info {
                        number: $number,
                        name: $name,
                        sentence: $sentence,
                        source: $source,
                    },)*
                }
            }
        }
    };
}

rules! {
    /// A region was deregistered too early.
    RegionInUse = 1, "region-in-use",
        "A memory region is deregistered or changed while requests use it.",
        "ibv_post_send(3), ibv_post_recv(3): buffers may only be reused after the completion";
    /// The data of a send may be the old or the new ones.
    SendBufferChanged = 2, "send-buffer-changed",
        "The buffer of a send or of an RDMA write is changed before the request has completed.",
        "ibv_post_send(3): buffers may only be reused after the completion";
    /// The adapter may write to memory that the program does not own any more.
    BufferUnmapped = 3, "buffer-unmapped",
        "The buffer of a request is unmapped before the request has completed.",
        "ibv_post_send(3): buffers may only be reused after the completion";
    /// The request completes with IBV_WC_LOC_PROT_ERR.
    OutsideRegion = 4, "outside-region",
        "A segment is not within the memory region of its local key.",
        "ibv_reg_mr(3): a region has the length with which it was registered";
    /// The request completes with IBV_WC_LOC_PROT_ERR.
    ForeignKey = 5, "foreign-key",
        "The local key of a segment belongs to another device or protection domain.",
        "ibv_alloc_pd(3), ibv_reg_mr(3): a region can be used with queues of its domain";
    /// The request completes with IBV_WC_LOC_PROT_ERR.
    DeregisteredKey = 6, "deregistered-key",
        "The local key of a segment is that of a region that has been deregistered.",
        "ibv_reg_mr(3): a key ends with its region";
    /// The request completes with IBV_WC_LOC_PROT_ERR.
    NotWritable = 7, "not-writable",
        "A request writes to a memory region without IBV_ACCESS_LOCAL_WRITE.",
        "ibv_reg_mr(3): a region without this flag is only read";
    /// The queue takes no more requests.
    QueueFull = 8, "queue-full",
        "More requests are outstanding than the queue was created for.",
        "ibv_create_qp(3): max_send_wr and max_recv_wr; ibv_create_srq(3): max_wr";
    /// The queue stays full for ever.
    NothingSignaled = 9, "nothing-signaled",
        "A send queue is full of requests without IBV_SEND_SIGNALED, so that no completion frees it.",
        "ibv_post_send(3): a completion also frees the unsignaled requests before it, only";
    /// The queue may overrun.
    CqTooSmall = 10, "cq-too-small",
        "More requests that will complete are outstanding than their completion queue can hold.",
        "ibv_create_cq(3), ibv_poll_cq(3): the program must prevent an overrun";
    /// Completions are lost.
    CqOverrun = 11, "cq-overrun",
        "A completion queue has overrun.",
        "ibv_poll_cq(3): the program must prevent an overrun, which reports IBV_EVENT_CQ_ERR";
    /// The device refuses the request.
    InlineTooLarge = 12, "inline-too-large",
        "A request with IBV_SEND_INLINE has more data than the queue pair takes inline.",
        "ibv_create_qp(3): max_inline_data";
    /// The device refuses the request.
    TooManySegments = 13, "too-many-segments",
        "A request has more segments than the queue was created for.",
        "ibv_create_qp(3): max_send_sge and max_recv_sge";
    /// The device refuses the request.
    WrongState = 14, "wrong-state",
        "A request is posted to a queue pair whose state does not permit it.",
        "ibv_modify_qp(3): receives are posted from INIT on, sends from RTS on";
    /// The request can only be flushed.
    PostAfterFailure = 15, "post-after-failure",
        "A request is posted to a queue pair that is in error after a failed completion.",
        "ibv_poll_cq(3), ibv_modify_qp(3): only RESET leaves the state ERR";
    /// The completions will never arrive.
    DestroyedInFlight = 16, "destroyed-in-flight",
        "A queue pair is destroyed or reset with requests whose completions are still expected.",
        "ibv_create_qp(3): the completions of a queue pair end with it";
    /// The program waits for ever.
    EventNotAcknowledged = 17, "event-not-acknowledged",
        "An object is destroyed whose events have not been acknowledged, and so the call waits.",
        "ibv_get_cq_event(3), ibv_get_async_event(3): destroying waits for all acknowledgements";
    /// The count of acknowledgements is wrong from then on.
    AcknowledgedTwice = 18, "acknowledged-twice",
        "More events are acknowledged than have been received.",
        "ibv_get_cq_event(3): one acknowledgement for each event";
    /// A completion that arrives in between wakes no thread.
    NoPollAfterArming = 19, "no-poll-after-arming",
        "A program waits for an event without a poll of the queue after it has armed it.",
        "ibv_get_cq_event(3): poll the queue after each ibv_req_notify_cq";
    /// The objects cannot be released any more.
    ClosedWithObjects = 20, "closed-with-objects",
        "A device is closed while objects of it exist.",
        "ibv_open_device(3): the program should release all resources before it closes a device";
    /// The object lives until the process ends.
    NotFreed = 21, "not-freed",
        "An object still exists when the process ends.",
        "ibv_open_device(3): the program should release all resources";
    /// The object stays.
    DestroyedInUse = 22, "destroyed-in-use",
        "An object cannot be destroyed, because others still use it.",
        "ibv_create_cq(3), ibv_alloc_pd(3), ibv_create_srq(3): the call fails, and the object stays";
    /// The program waits for ever, or the memory of the event is lost.
    ManagerEventKept = 23, "cm-event-not-acknowledged",
        "An event of the connection manager is not acknowledged.",
        "rdma_get_cm_event(3): destroying an identifier waits for the acknowledgement of its events";
    /// The program waits for ever.
    DestroyedInsideEvent = 24, "destroyed-inside-event",
        "An identifier is destroyed by the thread that has taken its event, before it acknowledges it.",
        "rdma_destroy_id(3), rdma_ack_cm_event(3): acknowledge all events before";
    /// The call fails.
    PrivateDataTooLong = 25, "private-data-too-long",
        "A message of the connection manager has less room than its private data need.",
        "rdma_connect(3); IBTA 12.6: 56 bytes in a request for a connection, 196 in a reply, 148 in \
         a refusal";
    /// The second call has no effect.
    DisconnectedTwice = 26, "disconnected-twice",
        "A connection is disconnected twice by one end.",
        "rdma_disconnect(3): each side calls it once";
    /// The call fails.
    IdentifierUsedAgain = 27, "identifier-used-again",
        "An identifier that has had a connection is used for another one.",
        "rdma_connect(3), rdma_create_id(3): each connection has an identifier of its own";
    /// Old data may be sent.
    UnfencedRead = 28, "unfenced-read",
        "A request sends what a read before it brings, and does not wait for the read.",
        "ibv_post_send(3): IBV_SEND_FENCE; IBTA 10.8.3.3: ordering of work requests";
    /// The peer may see the flag before the data.
    FlagOnOtherPair = 29, "flag-on-other-pair",
        "A flag is written by another queue pair than the data, before these have been written.",
        "IBTA 9.5: the order of operations is that of one queue pair";
}

impl Rule {
    /// Returns the rule with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| rule.info().name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_different() {
        for (number, rule) in (1..).zip(Rule::ALL) {
            assert_eq!(rule.info().number, number);
            assert_eq!(Rule::find(rule.info().name), Some(*rule));
        }
    }

    #[test]
    fn the_page_has_all_rules() {
        let page = include_str!("../../docs/checker.md");
        for rule in Rule::ALL {
            let Info { number, name, .. } = rule.info();
            assert!(
                page.contains(&format!("| {number} | `{name}` |")),
                "{name} is not in the page"
            );
        }
    }
}
