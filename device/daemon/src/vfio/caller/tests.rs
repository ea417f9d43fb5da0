//! Shows: hostile: requests to a VMM that answers late, wrongly, twice or never

use std::io::Read;

use proptest::prelude::*;

use super::*;

/// Length of the data of each message.
const PART: usize = 8;

/// Returns the requests on a connection that takes [`PART`] bytes at once, and its other end.
fn connected() -> (Caller, UnixStream) {
    let (own, other) = UnixStream::pair().expect("sockets");
    let caller = Caller::new(own);
    caller.limit(PART as u64);
    (caller, other)
}

/// Receives a write. Returns its header.
fn receive(mut from: &UnixStream) -> Header {
    let mut bytes = [0; size_of::<Header>() + size_of::<DmaAccess>() + PART];
    from.read_exact(&mut bytes).expect("a message");
    Header::read_from_prefix(&bytes).expect("a header").0
}

/// A reset ends a write whose first message is with the VMM.
#[test]
fn an_access_that_was_ended_sends_no_further_message() {
    let ((caller, other), end) = (connected(), End::default());
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| caller.write(64, &[7; 2 * PART], &end));
        let first = receive(&other);
        end.set();
        assert!(caller.deliver(&first, &[]), "the answer is awaited");
        writer.join().expect("a result")
    });
    assert_eq!(written, Err(Unanswered::Ended));
    drop(caller);
    assert_eq!((&other).read(&mut [0]).expect("the end"), 0);
}

#[test]
fn a_late_answer_shows_that_a_write_will_not_take_place() {
    let ((caller, other), end) = (connected(), End::default());
    assert_eq!(caller.write(64, &[7; PART], &end), Err(Unanswered::Late));
    let request = receive(&other);
    assert!(caller.is_owed(60, 8) && !caller.is_owed(65, 8));
    assert!(!caller.deliver(&request, &[]), "it belongs to no request any more");
    assert!(!caller.is_owed(60, 8));
}

/// The numbers of requests wrap, and the answer to an old one must not count for a new one.
#[test]
fn a_number_is_not_used_again_before_its_answer() {
    let (caller, _other) = connected();
    let mut state = caller.state.lock();
    let access = DmaAccess { addr: 0, count: 1 };
    state.owed.push(Asked { id: 1, command: Command::DmaWrite, access });
    assert_eq!([state.next_id(), state.next_id()], [0, 2]);
}

/// Bytes after the access of an answer, often as many as were asked for, also if another access
/// precedes them.
fn any_data() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |length| prop::collection::vec(any::<u8>(), length);
    prop_oneof![
        bytes(0..=3 * PART),
        bytes(PART..=PART),
        bytes(size_of::<DmaAccess>() + PART..=size_of::<DmaAccess>() + PART),
    ]
}

proptest! {
    #![proptest_config(vrnic_cases::config(2000))]

    /// A VMM's data are those of the request, or an error.
    ///
    /// Shows: hostile: replies of a VMM of any bytes
    #[test]
    fn any_reply_is_right_or_refused(
        is_write in any::<bool>(),
        addr in any::<u64>(),
        count in prop_oneof![Just(PART as u64), any::<u64>()],
        is_own in any::<bool>(),
        data in any_data(),
        flags in prop_oneof![Just(1), any::<u32>()],
        error in any::<u32>(),
    ) {
        let command = if is_write { Command::DmaWrite } else { Command::DmaRead };
        let access = DmaAccess { addr, count };
        let asked = Asked { id: 7, command, access };
        let body = if is_own { [access.as_bytes(), &data].concat() } else { data.clone() };
        let header = Header { flags, error, ..Header::command(7, command as u16, body.len()) };
        match asked.data_of(&header, &body) {
            Ok(got) if is_write => prop_assert!(got.is_empty()),
            Ok(got) => {
                prop_assert_eq!(got.len() as u64, count);
                prop_assert!(body.starts_with(access.as_bytes()) && body.ends_with(&got));
            }
            Err(refused) => {
                prop_assert!(header.error().is_some() || refused == Unanswered::Wrong);
            }
        }
        if is_own && header.error().is_none() {
            let right = if is_write { data.is_empty() } else { data.len() as u64 == count };
            prop_assert_eq!(asked.data_of(&header, &body).is_ok(), right);
        }
    }
}
