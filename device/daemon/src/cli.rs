//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::config::Settings;

/// Emulates vrnic RDMA adapters for QEMU over vfio-user.
///
/// Each function is one adapter in one guest. It has a vfio-user socket for the adapter itself and
/// an Ethernet socket for the guest's ordinary NIC with the same MAC. A learning Ethernet switch
/// connects the NICs, and by uplinks those of other daemons. The daemon executes RDMA between the
/// functions by copying from memory to memory.
#[derive(Debug, Parser)]
#[command(name = "vrnicd", version, before_help = MOST_USED, after_long_help = EXAMPLES)]
pub struct Args {
    /// The settings, which the command line and the file have in common.
    #[command(flatten)]
    pub settings: Settings,

    /// Read settings from a TOML file. The command line adds functions and overrides all other
    /// settings
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check the settings, report the first error, and exit
    #[arg(long)]
    pub check: bool,
}

const MOST_USED: &str = "\
Most used:
  vrnicd --function name=a,mac=52:54:00:00:00:0a,socket=/run/vrnic/a.sock,net=/run/vrnic/a.net
  vrnicd --config /etc/vrnic/vrnicd.toml            # serves what the file lists
  vrnicd --config /etc/vrnic/vrnicd.toml --check    # only looks for errors in it";

const EXAMPLES: &str = "\
Example: two adapters for two guests

  vrnicd --function name=a,mac=52:54:00:00:00:0a,socket=/run/vrnic/a.sock,net=/run/vrnic/a.net \\
         --function name=b,mac=52:54:00:00:00:0b,socket=/run/vrnic/b.sock,net=/run/vrnic/b.net

The same settings in a file for --config:

  log = \"info\"
  workers = 1
  socket-mode = \"0660\"
  socket-group = \"kvm\"
  [[function]]
  name = \"a\"
  mac = \"52:54:00:00:00:0a\"
  socket = \"/run/vrnic/a.sock\"
  net = \"/run/vrnic/a.net\"
  [[function]]
  name = \"b\"
  ...

QEMU arguments of guest a (its memory must be a shared memfd):

  -machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size=2G,share=on
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/vrnic/a.sock\"}}'
  -netdev stream,id=n0,server=off,addr.type=unix,addr.path=/run/vrnic/a.net
  -device virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0a

Example: another daemon on the same host, with a trunk between the two

  vrnicd --function ... --uplink name=up,listen=/run/vrnic/trunk.sock
  vrnicd --function ... --uplink name=up,connect=/run/vrnic/trunk.sock

On SIGHUP a daemon with a file reads it again, sets the log filter, and adds the functions, ports and
uplinks that it lacks; the log names other changes. On SIGTERM and SIGINT, and without a file on
SIGHUP, the daemon begins no more work requests, waits for those that it has begun (--drain), tells
the guests that their adapters have failed, removes its sockets and exits. A second signal ends the
wait.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use vrnic_control_api::FunctionConfig;

    use super::*;

    #[test]
    fn arguments_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_help_of_a_function_has_a_row_for_each_key() {
        let help = Args::command().render_long_help().to_string();
        for key in FunctionConfig::KEYS {
            let rows =
                help.lines().filter(|line| line.trim_start().starts_with(&format!("{key}=")));
            assert_eq!(rows.count(), 1, "{key} in:\n{help}");
        }
    }
}
