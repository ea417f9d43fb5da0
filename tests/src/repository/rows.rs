//! The rows of `tests/suites.toml`, and what derives from them.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// All rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    budget: Budget,
    /// The rows of the table of suites.
    #[serde(rename = "suite")]
    pub suites: Vec<Row>,
    /// The parts of `scripts/test` that are no suites.
    #[serde(rename = "part")]
    pub parts: Vec<Row>,
}

/// The seconds that all suites may take.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    smoke_seconds: u32,
    seconds: u32,
}

/// Where a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// `scripts/test` runs the smoke cases.
    Smoke,
    /// `scripts/test --all` runs it.
    All,
    /// Runs by name only.
    Name,
}

/// What is made before a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// The larger image of guests.
    Apps,
    /// The test programs of libpcap.
    Capture,
    /// The libraries of other distributions.
    Libraries,
    /// Repositories of packages, and a system that installs them.
    Repositories,
    /// The kernel's software iWARP.
    Siw,
    /// An image of guests with open-iscsi and fio.
    Storage,
}

impl Need {
    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apps => "apps",
            Self::Capture => "capture",
            Self::Libraries => "libraries",
            Self::Repositories => "repositories",
            Self::Siw => "siw",
            Self::Storage => "storage",
        }
    }
}

/// A suite, or a part.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name of the suite.
    pub name: String,
    /// A sentence.
    pub shows: String,
    /// The runs of `scripts/test` that have the suite.
    pub tier: Tier,
    /// How long all cases take.
    pub seconds: u32,
    /// How long the smoke cases take.
    #[serde(default)]
    pub smoke_seconds: u32,
    /// The smoke cases.
    #[serde(default)]
    pub smoke: Vec<String>,
    /// Why there are none.
    #[serde(default)]
    pub without: Option<String>,
    /// What all cases need.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// What the smoke cases need.
    #[serde(default)]
    pub smoke_needs: Vec<Need>,
}

impl List {
    /// Reads the rows of this repository.
    ///
    /// # Errors
    /// If they are not as the head of the file describes them.
    pub fn read() -> Result<Self> {
        Self::of(include_str!("../../suites.toml"))
    }

    fn of(text: &str) -> Result<Self> {
        let list: Self = toml::from_str(text).context("tests/suites.toml")?;
        list.check().context("tests/suites.toml")?;
        Ok(list)
    }

    fn check(&self) -> Result<()> {
        let sum = |seconds: fn(&Row) -> u32| self.suites.iter().map(seconds).sum::<u32>();
        let (smoke, all) = (sum(|row| row.smoke_seconds), sum(|row| row.seconds));
        let (smoke_most, most) = (self.budget.smoke_seconds, self.budget.seconds);
        ensure!(smoke <= smoke_most, "smoke cases take {smoke} s, and may take {smoke_most} s");
        ensure!(all <= most, "all suites take {all} s, and may take {most} s");
        for row in &self.suites {
            let whole = row.shows.ends_with('.') && row.seconds > 0;
            ensure!(whole, "{} needs a sentence and seconds", row.name);
            match row.tier {
                Tier::Smoke => ensure!(!row.smoke.is_empty(), "{} has no smoke cases", row.name),
                _ if row.without.is_none() => bail!("{} does not say why there are none", row.name),
                _ => ensure!(row.smoke.is_empty(), "{} has smoke cases", row.name),
            }
        }
        Ok(())
    }

    /// Returns the row of a suite.
    #[must_use]
    pub fn row(&self, suite: &str) -> Option<&Row> {
        self.suites.iter().find(|row| row.name == suite)
    }

    /// Returns suites and parts.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.suites.iter().chain(&self.parts)
    }

    /// Returns the table of suites for docs/testing.md.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = "| suite | what it shows | seconds | smoke cases in `scripts/test` |\n\
                         | --- | --- | --- | --- |\n"
            .to_owned();
        for row in self.rows() {
            let (name, shows) = (&row.name, row.shows.trim_end_matches('.'));
            let smoke = match (&row.without, row.tier) {
                (Some(why), _) => format!("none: it {why}"),
                (None, Tier::Smoke) => format!("{} ({} s)", row.smoke.len(), row.smoke_seconds),
                (None, Tier::All) => "none; `--all` runs it".to_owned(),
                (None, Tier::Name) => "none; it runs by name only".to_owned(),
            };
            // Writing to a string does not fail.
            let _ = writeln!(table, "| `{name}` | {shows} | {} | {smoke} |", row.seconds);
        }
        table
    }

    /// Returns a sentence about what `scripts/test` leaves out.
    #[must_use]
    pub fn left_out(&self) -> String {
        let whole = self.suites.iter().filter(|row| row.tier == Tier::All).count();
        let rows = self.rows().filter(|row| row.tier != Tier::Name);
        let seconds: u32 = rows.map(|row| row.seconds).sum();
        format!(
            "left out: the other cases of {} suites, all of {whole} suites, the models and the tests over \
             packets; scripts/test --all runs these, too, which takes about {} minutes",
            self.suites.len() - whole,
            seconds.div_ceil(60)
        )
    }
}

/// The lines before and after the table in docs/testing.md.
const MARKS: [&str; 2] = ["<!-- suites: by `vrnic-suites docs` -->\n", "<!-- end of suites -->\n"];

/// Returns the page with this table in the place of its own.
///
/// # Errors
/// If the page has no place for it.
pub fn with_table(page: &str, table: &str) -> Result<String> {
    let (before, rest) = page.split_once(MARKS[0]).context("the page has no table of suites")?;
    let (_, after) = rest.split_once(MARKS[1]).context("the table of suites has no end")?;
    let [start, end] = MARKS;
    Ok(format!("{before}{start}\n{table}\n{end}{after}"))
}

/// Returns the path of docs/testing.md.
#[must_use]
pub fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/testing.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "[[suite]]\nname = \"a\"\nshows = \"A.\"\nseconds = 40\n";

    fn refused(rows: &str, part: &str) {
        let text = format!("part = []\n[budget]\nsmoke_seconds = 10\nseconds = 50\n{rows}");
        let said = List::of(&text).map_or_else(|error| format!("{error:#}"), |_| String::new());
        assert!(said.contains(part), "{said}");
    }

    #[test]
    fn rows_that_are_wrong_are_refused() {
        refused(&format!("{ROW}tier = \"smoke\"\n"), "a has no smoke cases");
        refused(&format!("{ROW}tier = \"all\"\n"), "does not say why");
        let good = format!("{ROW}tier = \"smoke\"\nsmoke = [\"x\"]\n");
        refused(&format!("{good}{good}"), "all suites take 80 s, and may take 50 s");
        refused(&format!("{good}smoke_seconds = 11\n"), "smoke cases take 11 s");
        refused(&format!("{good}other = 1\n"), "unknown field");
    }

    #[test]
    fn the_table_takes_its_place() -> Result<()> {
        let page = format!("a\n{}old\n{}b\n", MARKS[0], MARKS[1]);
        let made = with_table(&page, "| new |\n")?;
        assert_eq!(made, format!("a\n{}\n| new |\n\n{}b\n", MARKS[0], MARKS[1]));
        assert!(with_table("a\n", "").is_err());
        Ok(())
    }
}
