//! A command with its environment, as text for a guest's shell.

use crate::command::{Command, quoted};
use crate::container::Container;
use crate::fleet::Fleet;
use crate::guest::Guest;
use crate::roots::overlay::TREE;

/// Folder of the guests for files that are kept.
pub const OUTPUT: &str = "/output";
/// The path in the guests of the file with [`shell`]'s text.
pub const SHELL_FILE: &str = "/vrnic/shell";
/// Variables that are set for commands in a container's root, in addition to those of its image.
const NAMES: &str = "VRNIC_NAME VRNIC_ADDRESS VRNIC_ADDRESSES VRNIC_PEER VRNIC_PEERS \
                     VRNIC_PEER_ADDRESSES VRNIC_DEVICE VRNIC_DEVICES VRNIC_OUTPUT VRNIC_ACCEL";

/// What commands need in addition to the guests.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The root in which they run, if it is not that of the guests.
    pub container: Option<Container>,
    /// Libraries that all programs load first.
    pub preload: Vec<String>,
    /// The options of the checker, if it is one of these libraries.
    pub check: Option<String>,
}

impl Place {
    /// Returns the variables that the libraries need, such as `NAME=value`.
    fn variables(&self) -> Vec<String> {
        let preload = (!self.preload.is_empty()).then(|| self.preload.join(":"));
        let preload = preload.map(|libraries| format!("LD_PRELOAD={libraries}"));
        let check = self.check.as_ref().map(|options| format!("VRNIC_CHECK={options}"));
        preload.into_iter().chain(check).collect()
    }
}

/// Returns a command with its environment.
#[must_use]
pub fn script(fleet: &Fleet, guest: &Guest, place: &Place, command: &Command) -> String {
    let prelude = variables(fleet, guest);
    let start = match &place.container {
        None => format!("{}cd {TREE} || exit\n{}", preload(place), command.shell()),
        Some(container) => format!("{}{}", enter(container, place), command.words()),
    };
    format!("{prelude}{start}")
}

/// Returns what a person's shell reads at its start.
#[must_use]
pub fn shell(fleet: &Fleet, guest: &Guest, place: &Place) -> String {
    let prelude = variables(fleet, guest);
    let start = match &place.container {
        None => format!("{}cd {TREE}", preload(place)),
        Some(container) => format!("{}/bin/sh", enter(container, place)),
    };
    format!("{prelude}{start}")
}

fn preload(place: &Place) -> String {
    place.variables().iter().map(|variable| format!("export {variable}\n")).collect()
}

/// Returns shell text that sets the variables that all commands have.
fn variables(fleet: &Fleet, guest: &Guest) -> String {
    let name = &guest.setup().name;
    let others: Vec<&Guest> = fleet.guests().filter(|other| other.setup().name != *name).collect();
    let own = addresses(guest);
    let address = guest.ip();
    // The only guest is its own peer, by its last adapter.
    let (peer, all) = match others.first() {
        Some(other) => (other.ip().to_owned(), addresses(other)),
        None => (own.last().cloned().unwrap_or_default(), own.clone()),
    };
    let peers: Vec<&str> = others.iter().map(|other| other.ip()).collect();
    let peers = if peers.is_empty() { peer.clone() } else { peers.join(" ") };
    let (own, all, accel) = (own.join(" "), all.join(" "), fleet.accel().name());
    format!(
        "export VRNIC_NAME={name} VRNIC_ADDRESS={address} VRNIC_PEER={peer} VRNIC_PEERS='{peers}'\n\
         export VRNIC_ADDRESSES='{own}' VRNIC_PEER_ADDRESSES='{all}'\n\
         export VRNIC_DEVICES=\"$(ls /sys/class/infiniband | paste -s -d ' ')\"\n\
         export VRNIC_DEVICE=${{VRNIC_DEVICES%% *}} VRNIC_OUTPUT={OUTPUT}\n\
         export VRNIC_ACCEL={accel}\n\
         mkdir -p {OUTPUT} || exit\n"
    )
}

/// Returns the IPv4 addresses of a guest's adapters, in order.
fn addresses(guest: &Guest) -> Vec<String> {
    guest.setup().adapters().map(|adapter| adapter.ip().to_owned()).collect()
}

/// Returns the beginning of a command line that runs a program in the root of a container, with
/// the environment, the user and the working folder of its image.
fn enter(container: &Container, place: &Place) -> String {
    let mut variables = container.config.env.clone();
    variables.extend(place.variables());
    let own = NAMES.split_whitespace().map(|name| format!("{name}=\"${name}\""));
    let own = own.collect::<Vec<_>>().join(" ");
    let folder = container.config.folder.clone().unwrap_or_else(|| TREE.to_owned());
    let root = format!("--root={}", crate::container::ROOT);
    let mut program = vec![root, format!("--wd={folder}")];
    let user = &container.user;
    if user.uid != 0 || user.gid != 0 {
        // The user id last, because it takes the right to change the other.
        program.extend([format!("--setgid={}", user.gid), format!("--setuid={}", user.uid)]);
    }
    // After --, a variable whose name begins so is no option.
    format!("exec env -i -- {} {own} /usr/bin/unshare {} -- ", quoted(&variables), quoted(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_load_the_checker_first() {
        assert_eq!(preload(&Place::default()), "");
        let libraries = ["/check.so", "/verbs.so"].map(str::to_owned).to_vec();
        let place = Place { preload: libraries, check: Some("fail".into()), container: None };
        let text = "export LD_PRELOAD=/check.so:/verbs.so\nexport VRNIC_CHECK=fail\n";
        assert_eq!(preload(&place), text);
    }

    #[test]
    fn a_variable_of_an_image_is_no_option() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let mut container = Container::open(root.path(), root.path())?;
        container.config.env = vec!["--split-string=a b".into(), "A=it's".into()];
        let text = enter(&container, &Place::default());
        // The shell of this machine runs it, with another program at its end.
        let (variables, _) = text.split_once(" VRNIC_NAME=").unwrap_or_default();
        let ran = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("{variables} /usr/bin/env")])
            .output()?;
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "--split-string=a b\nA=it's\n");
        Ok(())
    }
}
