//! What a counter must have become in a phase.

use std::fmt;
use std::str::FromStr;

use vrnic_abi::admin::STAT_NAMES;

/// A demand on the change of an adapter's counter, such as `a.out_of_buffer > 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The adapter.
    pub function: String,
    /// The name of the counter.
    pub counter: String,
    /// The relation of the change of the counter to the number.
    pub relation: Relation,
    /// The number that the change is compared with.
    pub number: u64,
}

/// A comparison of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `=`
    Equal,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

const RELATIONS: [(&str, Relation); 5] = [
    ("=", Relation::Equal),
    (">", Relation::Above),
    (">=", Relation::AtLeast),
    ("<", Relation::Below),
    ("<=", Relation::AtMost),
];

impl Expectation {
    /// Returns whether a change fulfils it.
    #[must_use]
    pub const fn holds(&self, change: u64) -> bool {
        match self.relation {
            Relation::Equal => change == self.number,
            Relation::Above => change > self.number,
            Relation::AtLeast => change >= self.number,
            Relation::Below => change < self.number,
            Relation::AtMost => change <= self.number,
        }
    }
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("'{text}' is not of the form 'a.out_of_buffer > 0'");
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[place, relation, number] = words.as_slice() else { return Err(form()) };
        let (function, counter) = place.split_once('.').ok_or_else(form)?;
        if !STAT_NAMES.contains(&counter) {
            return Err(format!(
                "no adapter has a counter '{counter}'; 'vrnic show counters' lists them"
            ));
        }
        let relation = RELATIONS.iter().find(|(name, _)| *name == relation).ok_or_else(form)?.1;
        let number = number.parse().map_err(|_| form())?;
        Ok(Self { function: function.to_owned(), counter: counter.to_owned(), relation, number })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, counter, relation, number } = self;
        let found = RELATIONS.iter().find(|(_, known)| known == relation);
        write!(f, "{function}.{counter} {} {number}", found.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_read_and_compared() {
        let texts = [("a.tx_pkts = 3", [3, 2]), ("b1.tx_pkts > 3", [4, 3])];
        let more =
            [("a.tx_pkts >= 3", [3, 2]), ("a.tx_pkts < 3", [2, 3]), ("a.tx_pkts <= 3", [3, 4])];
        for (text, [good, bad]) in texts.into_iter().chain(more) {
            let read: Expectation = text.parse().expect(text);
            assert!(read.holds(good) && !read.holds(bad), "{text}");
            assert_eq!(read.to_string(), text);
        }
        for text in ["", "a.tx_pkts", "a.tx_pkts ~ 3", "a.tx_pkts > x", "tx_pkts > 3", "a.luck > 3"]
        {
            assert!(text.parse::<Expectation>().is_err(), "{text}");
        }
    }
}
