//! Screens as a terminal would show them.
//!
//! Shows: views: screens of vrnic top

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;
use serde_json::{Value as Json, json};
use vrnic_control_api::AdapterView;

use super::*;
use crate::top::model::Wish;
use crate::top::picture::Answer;

fn function(name: &str, writes: u64) -> AdapterView {
    AdapterView {
        name: name.to_owned(),
        mac: String::new(),
        enabled: true,
        fatal: 0,
        link: true,
        objects: [("qps".to_owned(), 2)].into(),
        counters: [("tx_write_req".to_owned(), writes), ("rx_bytes".to_owned(), 0)].into(),
    }
}

fn qp(qpn: u64, posted: u32, next: u32) -> Json {
    json!({
        "qpn": qpn, "kind": "rc", "state": "rts", "srqn": null, "retries": 3,
        "send": { "size": 128, "posted": posted, "next": next, "in_device": false },
        "recv": null,
    })
}

/// Returns a picture of two functions, one of which has two QPs.
fn picture(qps: bool) -> Picture {
    let answer = |writes: u64, posted: u32| Answer {
        functions: vec![function("a", writes), function("b", 0)],
        of: qps.then(|| "a".to_owned()),
        qps: if qps { vec![qp(17, 5, 5), qp(18, posted, u32::MAX - 9)] } else { Vec::new() },
        connections: vec![json!({ "qpn": 18, "remote": "10.9.0.2:4791", "retrans": 3 })],
    };
    let mut picture = Picture::new(answer(100, u32::MAX));
    picture.next(answer(500, 54));
    picture.seconds = 2.0;
    picture
}

/// Returns the lines of a screen of this size, and the rows that are highlighted as a whole.
fn screen(
    model: &mut Model,
    picture: &Picture,
    width: u16,
    height: u16,
) -> (Vec<String>, Vec<u16>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, model, picture)).expect("a screen");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let reversed = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
    let lines = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    (lines, (0..height.saturating_sub(1)).filter(reversed).collect())
}

fn press(model: &mut Model, picture: &Picture, code: KeyCode) -> Option<Wish> {
    model.key(KeyEvent::new(code, KeyModifiers::NONE), &picture.now, 10)
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn functions_have_a_row_each() {
    let (mut model, picture) = (Model::default(), picture(false));
    let (lines, chosen) = screen(&mut model, &picture, 120, 8);
    assert_eq!(lines[0], "vrnicd: functions: 2");
    assert_eq!(words(&lines[1])[..3], ["function", "state", "qps"]);
    // 400 WRITEs in 2 s.
    assert_eq!(words(&lines[2])[..7], ["a", "active", "2", "0.0", "0.0", "0", "200"]);
    assert_eq!(words(&lines[3])[..2], ["b", "active"]);
    assert!(lines[7].contains("Enter queue pairs") && lines[7].contains("q quit"), "{}", lines[7]);
    assert_eq!(chosen, [2]);
    assert_eq!(press(&mut model, &picture, KeyCode::Down), Some(Wish::Draw));
    assert_eq!(screen(&mut model, &picture, 120, 8).1, [3]);
    // Columns that do not fit are left out. No column is cut off.
    let narrow = screen(&mut model, &picture, 40, 8).0;
    assert_eq!(words(&narrow[1]), ["function", "state", "qps", "tx", "MB/s", "rx", "MB/s"]);
    // There is nothing below the last row.
    press(&mut model, &picture, KeyCode::Down);
    assert_eq!(screen(&mut model, &picture, 120, 8).1, [3]);
}

#[test]
fn keys_lead_to_one_queue_pair_and_back() {
    let (mut model, all) = (Model::default(), picture(false));
    assert_eq!(press(&mut model, &all, KeyCode::Enter), Some(Wish::Fetch));
    assert_eq!(model.watched(), Some("a"));
    let picture = picture(true);
    let (lines, _) = screen(&mut model, &picture, 120, 8);
    assert_eq!(lines[0], "function a: queue pairs: 2");
    let heads = words(&lines[1]);
    assert_eq!((heads[0], *heads.last().expect("heads")), ("qpn", "posted/s"));
    // From 2^32 - 1 to 54 are 55 in 2 s; 64 are not taken yet.
    assert_eq!(words(&lines[3])[..3], ["18", "rc", "rts"]);
    assert!(lines[3].contains("64/128") && lines[3].ends_with(" 28"), "{}", lines[3]);
    press(&mut model, &picture, KeyCode::End);
    assert_eq!(press(&mut model, &picture, KeyCode::Enter), Some(Wish::Draw));
    let (lines, _) = screen(&mut model, &picture, 140, 20);
    let text = lines.join("\n");
    assert_eq!(lines[0], "function a, queue pair 18");
    assert!(text.contains("[##########..........] 64/128  posted 54  taken 4294967286"), "{text}");
    assert!(text.contains("recv  none") && text.contains("state           rts"), "{text}");
    assert!(text.contains("Connection") && text.contains("10.9.0.2:4791"), "{text}");
    assert!(text.contains("tx_write_req") && text.contains("500") && text.contains("200/s"));
    assert!(!text.contains("rx_bytes"), "a counter that is 0 is shown:\n{text}");
    press(&mut model, &picture, KeyCode::Esc);
    press(&mut model, &picture, KeyCode::Esc);
    assert_eq!(model.level, Level::Functions);
    assert_eq!(press(&mut model, &picture, KeyCode::Char('q')), Some(Wish::Quit));
}

#[test]
fn a_queue_pair_that_is_gone_is_said_to_be_gone() {
    let (mut model, mut picture) = (Model::default(), picture(true));
    press(&mut model, &picture, KeyCode::Enter);
    press(&mut model, &picture, KeyCode::Enter);
    picture.now.qps.clear();
    let (lines, _) = screen(&mut model, &picture, 80, 8);
    assert_eq!(lines[1], "This queue pair does not exist any more.");
    press(&mut model, &picture, KeyCode::Esc);
    assert_eq!(screen(&mut model, &picture, 80, 8).0[1], "There are no queue pairs.");
    assert_eq!(press(&mut model, &picture, KeyCode::Enter), None);
}

#[test]
fn every_size_can_be_drawn() {
    let (mut model, picture) = (Model::default(), picture(true));
    for _level in 0..3 {
        for width in [1, 2, 7, 17, 40, 61] {
            for height in [1, 2, 3, 4, 5, 9, 12] {
                screen(&mut model, &picture, width, height);
            }
        }
        press(&mut model, &picture, KeyCode::Enter);
    }
    assert_eq!(model.level, Level::Qp);
}

#[test]
fn the_chosen_row_stays_in_sight() {
    let (mut model, mut picture) = (Model::default(), picture(true));
    press(&mut model, &picture, KeyCode::Enter);
    picture.now.qps = (100..200).map(|qpn| qp(qpn, 0, 0)).collect();
    press(&mut model, &picture, KeyCode::End);
    let (lines, chosen) = screen(&mut model, &picture, 80, 8);
    assert!(lines[6].starts_with("199 ") && chosen == [6], "{lines:?} {chosen:?}");
    // The chosen QP is kept when those before it go.
    picture.now.qps.drain(..50);
    let (lines, chosen) = screen(&mut model, &picture, 80, 8);
    assert!(lines[usize::from(chosen[0])].starts_with("199 "), "{lines:?} {chosen:?}");
}
