// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Requests for events of a completion queue, one after the other.
//!
//! Shows: completions: requests for events that the adapter has not read yet

use vrnic_abi::doorbell::{ArmRequest, arm_request};
use vrnic_abi::uar::{ARM_NEXT, ARM_SOLICITED};

/// The request that was made last: the first one of this kind, with completions below 7 seen.
fn last(kind: u32) -> ArmRequest {
    ArmRequest { word: arm_request(1, kind), seen: 7 }
}

/// A request that the adapter may not have read is not taken back: the next one stands for both.
#[test]
fn a_request_that_was_not_read_counts() {
    for (old, new, both) in [
        (ARM_NEXT, ARM_NEXT, ARM_NEXT),
        (ARM_NEXT, ARM_SOLICITED, ARM_NEXT),
        (ARM_SOLICITED, ARM_NEXT, ARM_NEXT),
        (ARM_SOLICITED, ARM_SOLICITED, ARM_SOLICITED),
    ] {
        let unread = last(old).then(new, 9, arm_request(0, old));
        assert_eq!((unread.word, unread.seen), (arm_request(2, both), 7), "{old} then {new}");
        let read = last(old).then(new, 9, last(old).word);
        assert_eq!((read.word, read.seen), (arm_request(2, new), 9), "{old}, read, then {new}");
    }
}

/// The number of a request begins again at zero after the last one.
#[test]
fn numbers_of_requests_wrap() {
    let last = ArmRequest { word: arm_request(u32::MAX >> 2, ARM_NEXT), seen: 1 };
    assert_eq!(last.then(ARM_SOLICITED, 2, last.word).word, arm_request(0, ARM_SOLICITED));
    assert_eq!(last.then(ARM_SOLICITED, 2, 0).word, arm_request(0, ARM_NEXT));
}
