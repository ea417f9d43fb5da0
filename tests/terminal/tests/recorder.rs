//! Recordings of real programs.

use std::time::Duration;

use vrnic_terminal::recorder::{Keys, record};

fn shell(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(str::to_owned).to_vec()
}

/// The program has a terminal of the given size, which is also the one of its signals, and gets the
/// keys.
#[test]
fn a_program_is_recorded_with_the_keys_that_are_pressed() {
    let program = shell(
        "stty -echo; stty size </dev/tty; read word; sleep 0.3; printf 'got %s\\n' \"$word\"",
    );
    let keys = Keys { after: Duration::from_millis(200), text: "yes\r".into() };
    let outputs = record(&program, 72, 10, vec![keys]).expect("a recording");
    let text: String = outputs.iter().map(|output| output.text.as_str()).collect();
    assert_eq!(text, "10 72\r\ngot yes\r\n");
    let last = outputs.last().expect("an output").time;
    assert!(last >= 500, "the last output is at {last} ms, before the key and the pause");
    assert!(outputs.is_sorted_by_key(|output| output.time), "the times are not in order");
}

/// The parts of a character that come in two outputs are one character.
#[test]
fn characters_are_not_cut() {
    let outputs = record(&shell("printf '\\302'; sleep 0.2; printf '\\265s'"), 80, 24, vec![]);
    let outputs = outputs.expect("a recording");
    let texts: Vec<_> = outputs.iter().map(|output| output.text.as_str()).collect();
    assert_eq!(texts, ["µs"]);
}

#[test]
fn a_program_that_fails_makes_no_recording() {
    let error = record(&shell("echo why; exit 3"), 80, 24, vec![]);
    let error = error.expect_err("a status of 3").to_string();
    assert!(error.contains("exit status: 3") && error.contains("why"), "{error}");
}
