//! A table of the functions, for output that is no terminal.

use std::time::Duration;

use crate::client::Client;
use crate::show::table;
use crate::top::picture::{Answer, Picture};
use crate::top::rates;

/// Prints a table every `interval` seconds, `looks` times (0: for ever).
pub(super) fn run(client: &Client, interval: f64, looks: u64) -> anyhow::Result<()> {
    let mut picture = Picture::new(Answer::fetch(client, None)?);
    let mut done = 0;
    while looks == 0 || done < looks {
        std::thread::sleep(Duration::from_secs_f64(interval));
        picture.next(Answer::fetch(client, None)?);
        println!("{}", render(&picture));
        done += 1;
    }
    Ok(())
}

fn render(picture: &Picture) -> String {
    let mut table = table(&rates::heads());
    for function in &picture.now.functions {
        let Some(before) = picture.before.function(&function.name) else { continue };
        table.add_row(rates::cells(before, function, picture.seconds));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use vrnic_control_api::AdapterView;

    use super::*;

    fn function(writes: u64, bytes: u64) -> AdapterView {
        AdapterView {
            name: "a".to_owned(),
            mac: String::new(),
            enabled: true,
            fatal: 0,
            link: true,
            objects: [("qps".to_owned(), 7)].into(),
            counters: [("tx_write_req".to_owned(), writes), ("tx_bytes".to_owned(), bytes)].into(),
        }
    }

    fn words(before: AdapterView, now: AdapterView, seconds: f64) -> Vec<String> {
        let answer = |function| Answer { functions: vec![function], ..Answer::default() };
        let mut picture = Picture::new(answer(before));
        picture.next(answer(now));
        picture.seconds = seconds;
        let text = render(&picture);
        let row = text.lines().last().expect("a row");
        row.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let words_of = words(function(100, 0), function(500, 8_000_000), 2.0);
        assert_eq!(words_of[..7], ["a", "active", "7", "4.0", "0.0", "0", "200"]);
        // Counters that began again give no rate.
        assert_eq!(words(function(500, 0), function(3, 0), 1.0)[6], "0");
    }
}
