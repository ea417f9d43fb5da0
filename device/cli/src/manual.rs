//! Manual pages and completions for shells of `vrnic` and `vrnicd`, for packages.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Args;

/// The shells with completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes all files into a folder, which is created if it does not exist. `daemon` has the options
/// of vrnicd.
pub(crate) fn write(folder: &Path, daemon: Command) -> anyhow::Result<()> {
    let context = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(context)?;
    for command in [Args::command(), daemon] {
        // With the option --help, the commands `help` are superfluous.
        let without = |command: Command| command.disable_help_subcommand(true);
        let mut command = without(command).mut_subcommands(without);
        let name = command.get_name().to_owned();
        for shell in SHELLS {
            clap_complete::generate_to(shell, &mut command, &name, folder).with_context(context)?;
        }
        clap_mangen::generate_to(command, folder).with_context(context)?;
    }
    Ok(())
}
