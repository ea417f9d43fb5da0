//! Random lines for the control socket.
//!
//! Shows: hostile

use vrnic_control_api::request::{Reply, Request};

/// Requests whose bytes are changed.
const SEEDS: [&str; 8] = [
    r#"{"add-uplink":{"name":"up","tap":"vr0"}}"#,
    r#"{"add-function":{"name":"a","mac":"52:54:00:76:72:0a","socket":"/a.sock","net":"/a.net"}}"#,
    r#"{"remove-function":{"name":"a","force":true}}"#,
    r#"{"limit-function":{"name":"a","ceilings":{"qp":5}}}"#,
    r#"{"add-fault":"drop function=a prob=0.01 seed=7 for=60s"}"#,
    r#"{"clear-faults":null}"#,
    r#"{"clear-faults":7}"#,
    r#""list-functions""#,
];

/// A line is a request that is written as it was read, or it is refused.
#[test]
fn any_line_is_read_or_refused() {
    let mut read = 0_u64;
    vrnic_cases::seeds(20_000, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut line = SEEDS[rng.usize(..SEEDS.len())].as_bytes().to_vec();
        for _ in 0..rng.u8(..4) {
            let at = rng.usize(..line.len());
            match rng.u8(..4) {
                0 => line[at] = rng.u8(..),
                1 => line.insert(at, b"\"{}[],:0-9e\\"[rng.usize(..12)]),
                2 => drop(line.remove(at)),
                _ => line.extend_from_within(at..),
            }
        }
        let _reply = serde_json::from_slice::<Reply>(&line);
        if let Ok(request) = serde_json::from_slice::<Request>(&line) {
            let again = serde_json::to_vec(&request).expect("text");
            assert_eq!(serde_json::from_slice::<Request>(&again).ok(), Some(request));
            read += 1;
        }
        1
    });
    assert!(read > 0, "no line was a request");
}
