//! `vrnic exec --profile all`: runs a program once for each profile of another device.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Context;
use vrnic_profiles::Profile;

/// The name that stands for all profiles.
pub(crate) const ALL: &str = "all";
/// The option with the name.
const OPTION: &str = "--profile";
/// Exit status if a program could not be started.
const FAILED: u8 = 125;

/// How the program has ended with a profile.
struct Ended {
    profile: Profile,
    status: u8,
}

/// Runs this command once for each profile, one after the other, and prints a table. Returns the
/// first status that is not zero.
pub(crate) fn run_all() -> ExitCode {
    match each() {
        Ok(all) => {
            eprint!("{}", table(&all));
            all.iter().map(|ended| ended.status).find(|status| *status != 0).unwrap_or(0).into()
        }
        Err(error) => {
            eprintln!("vrnic exec: {error:#}");
            FAILED.into()
        }
    }
}

fn each() -> anyhow::Result<Vec<Ended>> {
    let own = std::env::current_exe()?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let run = |profile: Profile| {
        eprintln!("vrnic exec: profile {}", profile.name);
        let ended = Command::new(&own).args(with_name(&arguments, &profile.name)).status();
        let status = code(ended.context("a program cannot be started")?);
        Ok(Ended { profile, status })
    };
    Profile::all()?.into_iter().map(run).collect()
}

/// Returns the arguments with the name of one profile in place of that of all.
fn with_name(arguments: &[OsString], name: &str) -> Vec<OsString> {
    let joined = format!("{OPTION}={ALL}");
    let is_option =
        |pair: &[OsString]| matches!(pair, [option, value] if option == OPTION && value == ALL);
    let joint = arguments.iter().position(|argument| argument == joined.as_str());
    let apart = arguments.windows(2).position(is_option).map(|place| place + 1);
    let mut changed = arguments.to_vec();
    // The program may have such an argument, too, but after the option.
    let is_joint = joint.is_some_and(|joint| apart.is_none_or(|apart| joint < apart));
    let (place, text) =
        if is_joint { (joint, format!("{OPTION}={name}")) } else { (apart, name.to_owned()) };
    if let Some(argument) = place.and_then(|place| changed.get_mut(place)) {
        *argument = text.into();
    }
    changed
}

/// Returns the exit status of a process, as a shell does.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Returns the table.
fn table(all: &[Ended]) -> String {
    let width = all.iter().map(|ended| ended.profile.name.len()).max().unwrap_or(0);
    let mut text = format!("{:<width$}  status  device\n", "profile");
    for Ended { profile, status } in all {
        text += &format!("{:<width$}  {status:>6}  {}\n", profile.name, profile.device);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_option_is_replaced() {
        let arguments = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let given = arguments(&["exec", "--profile", "all", "ls", "all", "--profile=all"]);
        let expected = arguments(&["exec", "--profile", "vf", "ls", "all", "--profile=all"]);
        assert_eq!(with_name(&given, "vf"), expected);
        let given = arguments(&["exec", "--profile=all", "x", "--profile", "all"]);
        let expected = arguments(&["exec", "--profile=vf", "x", "--profile", "all"]);
        assert_eq!(with_name(&given, "vf"), expected);
    }

    #[test]
    fn the_table_has_a_row_for_each_profile() {
        let ended = |name: &str, status| {
            let (name, device) = (name.to_owned(), "a device".to_owned());
            Ended { profile: Profile { name, device, ..Profile::default() }, status }
        };
        let text = table(&[ended("thunderbolt", 0), ended("vf", 12)]);
        let rows = "profile      status  device\n\
                    thunderbolt       0  a device\n\
                    vf               12  a device\n";
        assert_eq!(text, rows);
    }
}
