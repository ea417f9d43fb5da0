//! The check that a root has all that a command needs to start.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::Command;
use crate::container::Container;
use crate::container::inside::inside;
use crate::roots::overlay::TREE;

/// The shell that runs commands that are text.
const SHELL: &str = "/bin/sh";
/// The processors whose programs the guests run: i386 and x86-64.
const PROCESSORS: [u16; 2] = [3, 62];

/// Checks that the root has the program of a command, for a processor of the guests.
///
/// # Errors
/// If it does not.
pub fn command(container: &Container, command: &Command) -> Result<()> {
    let root = &container.folder;
    let file = match command {
        Command::Text(_) => Some(inside(root, Path::new(SHELL)).with_context(|| {
            format!(
                "the root has no {SHELL}, which runs commands that are one word; give the program \
                 and its arguments as separate words"
            )
        })?),
        Command::Words(words) => {
            let program = words.first().map(String::as_str).unwrap_or_default();
            find(container, program)
                .with_context(|| format!("the root has no program '{program}'"))?
        }
    };
    file.map_or(Ok(()), |file| processor(&file))
}

/// Returns a program of the root, or an error if there is none. Programs in the folder of --copy
/// are not looked at.
fn find(container: &Container, program: &str) -> Result<Option<PathBuf>> {
    let root = &container.folder;
    let folder = container.config.folder.as_deref().unwrap_or(TREE);
    let path = Path::new(folder).join(program);
    if program.contains('/') {
        if path.starts_with(TREE) {
            return Ok(None);
        }
        return inside(root, &path).map(Some).context("it does not exist");
    }
    let search = container.config.variable("PATH").unwrap_or_default();
    let mut places = search.split(':').map(|folder| inside(root, &Path::new(folder).join(program)));
    places
        .find_map(|file| file.filter(|file| file.is_file()))
        .map(Some)
        .context("it is not in PATH")
}

/// Checks the processor of a program, unless it is a script.
fn processor(file: &Path) -> Result<()> {
    let mut head = [0; 20];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() || !head.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    ensure!(
        head[5] == 1 && PROCESSORS.contains(&machine),
        "the program {} of the root is for another processor (ELF machine {machine}), and the \
         guests are x86-64",
        file.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns a root whose shell has this content.
    fn root(shell: &[u8]) -> Result<(tempfile::TempDir, Container)> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("bin"))?;
        fs::write(dir.path().join("bin/sh"), shell)?;
        let container = Container::open(dir.path(), dir.path())?;
        Ok((dir, container))
    }

    /// Returns the head of a program for a processor.
    fn program(machine: u8) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(18, 0);
        head.extend([machine, 0]);
        head
    }

    fn complaint(container: &Container, words: &[&str]) -> String {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        command(container, &Command::new(words))
            .map_or_else(|it| it.to_string(), |()| String::new())
    }

    #[test]
    fn the_program_of_the_command_must_be_there() -> Result<()> {
        let (_dir, container) = root(&program(62))?;
        assert_eq!(complaint(&container, &["sh x | y"]), "");
        assert_eq!(complaint(&container, &["sh", "-c", "x"]), "");
        assert_eq!(complaint(&container, &["/bin/sh", "-c"]), "");
        assert_eq!(complaint(&container, &["./copied", "x"]), "");
        assert_eq!(complaint(&container, &["bash", "x"]), "the root has no program 'bash'");
        assert_eq!(complaint(&container, &["/bin/x", "x"]), "the root has no program '/bin/x'");
        let empty = tempfile::tempdir()?;
        let container = Container::open(empty.path(), empty.path())?;
        assert!(complaint(&container, &["x"]).contains("has no /bin/sh"));
        Ok(())
    }

    #[test]
    fn programs_for_other_processors_are_refused() -> Result<()> {
        let (_dir, container) = root(&program(183))?;
        assert!(complaint(&container, &["x"]).contains("ELF machine 183"));
        let (_dir, container) = root(&program(3))?;
        assert_eq!(complaint(&container, &["x"]), "");
        let (_dir, container) = root(b"#!/bin/other\n")?;
        assert_eq!(complaint(&container, &["x"]), "");
        Ok(())
    }
}
