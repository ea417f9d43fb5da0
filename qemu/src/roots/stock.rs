//! All modules of the stock kernel, and modules of one's own, which guests load when they start.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::roots::kernel::Module;

/// Folder of the guests for modules.
const FOLDER: &str = "/vrnic";
/// The file in the folder of modules that says that some are left out.
const PARTIAL: &str = "partial";
/// The name of the adapter's module, which the guests load last.
const OWN: &str = "vrnic";

/// The table of the stock kernel's modules.
#[derive(Debug)]
pub struct Stock {
    folder: PathBuf,
    /// The file of a module, and those that it needs, by its name.
    modules: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    file: String,
    needs: Vec<String>,
}

/// Modules in the order in which a guest loads them.
#[derive(Debug, Default)]
pub struct Plan {
    /// Files for the guests: path and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Shell commands that load them.
    pub script: String,
    /// Names of the modules that the script loads.
    names: Vec<String>,
}

impl Stock {
    /// Reads the table that `scripts/setup --modules` has made.
    ///
    /// # Errors
    /// If it is not there.
    pub fn open(folder: &Path) -> Result<Self> {
        let table = folder.join("modules.dep");
        let text = fs::read_to_string(&table)
            .with_context(|| format!("{}; scripts/setup --modules makes it", table.display()))?;
        let modules = text.lines().filter_map(entry).collect();
        Ok(Self { folder: folder.to_owned(), modules })
    }

    /// Adds a module and those that it needs to a plan. `text` is its name, and may have parameters
    /// after it.
    ///
    /// # Errors
    /// If there is no such module, or its parameters would be lost.
    pub fn add(&self, plan: &mut Plan, text: &str) -> Result<()> {
        let (name, parameters) = text.split_once(' ').unwrap_or((text, ""));
        let entry = self.modules.get(&plain(name));
        let entry = entry.with_context(|| {
            if self.folder.join(PARTIAL).exists() {
                format!(
                    "this container image has no module '{name}'; build it with the option \
                     --modules of scripts/image"
                )
            } else {
                format!("the stock kernel has no module '{name}'")
            }
        })?;
        // The table has them in the order of their removal.
        for file in entry.needs.iter().rev() {
            self.file(plan, file, "")?;
        }
        self.file(plan, &entry.file, parameters)
    }

    /// Adds a file of the stock kernel.
    fn file(&self, plan: &mut Plan, file: &str, parameters: &str) -> Result<()> {
        let path = self.folder.join(file);
        let data = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = file.rsplit('/').next().unwrap_or(file);
        plan.add(name, data, parameters)
    }
}

impl Plan {
    /// Adds a module from a file, for the kernel with this release, and the modules of the stock
    /// kernel that it needs.
    ///
    /// # Errors
    /// If it is built for another kernel, or the plan has a module with its name.
    pub fn own(&mut self, stock: Option<&Stock>, path: &Path, release: &str) -> Result<()> {
        let module = Module::read(path)?;
        module.fits(release)?;
        let data = fs::read(path)?;
        if module.name == OWN {
            // This module replaces ours, which the guests load by this path.
            self.files.push((format!("{FOLDER}/vrnic.ko"), data));
            return Ok(());
        }
        for needed in &module.needs {
            if !self.names.contains(&plain(needed))
                && let Some(stock) = stock
                && stock.modules.contains_key(&plain(needed))
            {
                stock.add(self, needed)?;
            }
        }
        ensure!(
            !self.names.contains(&plain(&module.name)),
            "another option loads the module {} already, so {} would not be loaded",
            module.name,
            path.display()
        );
        self.add(&format!("{}.ko", module.name), data, "")
    }

    /// Adds the file of a module, unless it is there. A module that is there cannot get parameters.
    fn add(&mut self, file: &str, data: Vec<u8>, parameters: &str) -> Result<()> {
        let name = plain(file.split('.').next().unwrap_or(file));
        if self.names.contains(&name) {
            ensure!(
                parameters.is_empty(),
                "another option loads the module {name} before '{name} {parameters}' does, and \
                 without these parameters; give the one with parameters first"
            );
            return Ok(());
        }
        let path = format!("{FOLDER}/{file}");
        self.script += &if parameters.is_empty() {
            format!("[ -d /sys/module/{name} ] || insmod {path} || exit\n")
        } else {
            format!(
                "if [ -d /sys/module/{name} ]; then echo 'the kernel has loaded the module {name} \
                 before, so it cannot get the parameters {parameters}' >&2; exit 1; fi\n\
                 insmod {path} {parameters} || exit\n"
            )
        };
        self.files.push((path, data));
        self.names.push(name);
        Ok(())
    }
}

/// Returns a row of the table: the name of a module, and its entry.
fn entry(line: &str) -> Option<(String, Entry)> {
    let (file, needs) = line.split_once(':')?;
    let name = file.rsplit('/').next()?.split('.').next()?;
    let needs = needs.split_whitespace().map(str::to_owned).collect();
    Some((plain(name), Entry { file: file.to_owned(), needs }))
}

/// Returns a module's name as the kernel writes it.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Checks that the parameters of a module are words that a shell takes as they are.
///
/// # Errors
/// If they are not.
pub fn check(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b" _-=,.:/".contains(&byte);
    if text.is_empty() || !text.bytes().all(good) {
        return Err(format!("'{text}' is not the name of a kernel module and its parameters"));
    }
    Ok(text.to_owned())
}

/// Checks that a module that a kernel needs fits it.
///
/// # Errors
/// If it does not, or there is none.
pub fn fits(module: &Path, release: &str) -> Result<()> {
    ensure!(module.exists(), "there is no {}; scripts/lab builds it", module.display());
    Module::read(module)?.fits(release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_those_that_they_need() -> Result<()> {
        let folder = tempfile::tempdir()?;
        for name in ["a", "b-b", "c"] {
            fs::write(folder.path().join(format!("{name}.ko.xz")), name)?;
        }
        let table = "a.ko.xz: b-b.ko.xz c.ko.xz\nb-b.ko.xz: c.ko.xz\nc.ko.xz:\n";
        fs::write(folder.path().join("modules.dep"), table)?;
        let stock = Stock::open(folder.path())?;
        let mut plan = Plan::default();
        stock.add(&mut plan, "b_b x=1")?;
        stock.add(&mut plan, "a")?;
        let files: Vec<&str> = plan.files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(files, ["/vrnic/c.ko.xz", "/vrnic/b-b.ko.xz", "/vrnic/a.ko.xz"]);
        let lines: Vec<&str> = plan.script.lines().collect();
        assert_eq!(lines[0], "[ -d /sys/module/c ] || insmod /vrnic/c.ko.xz || exit");
        assert!(lines[1].starts_with("if [ -d /sys/module/b_b ]; then echo") && lines.len() == 4);
        assert_eq!(lines[2], "insmod /vrnic/b-b.ko.xz x=1 || exit");
        stock.add(&mut plan, "c")?;
        let error = stock.add(&mut plan, "c y=2").map_err(|error| error.to_string());
        assert!(error.is_err_and(|it| it.contains("before 'c y=2' does")));
        assert_eq!(plan.files.len(), 3);
        let error = stock.add(&mut plan, "none").map_err(|error| error.to_string());
        assert_eq!(error, Err("the stock kernel has no module 'none'".into()));
        fs::write(folder.path().join(PARTIAL), "")?;
        let error = stock.add(&mut plan, "none").map_err(|error| error.to_string());
        assert!(error.is_err_and(|it| it.contains("--modules of scripts/image")));
        Ok(())
    }

    #[test]
    fn a_module_of_ones_own_must_fit_and_may_replace_ours() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = |name: &str| -> Result<PathBuf> {
            let path = folder.path().join(format!("{name}.ko"));
            let fields = format!("depends=\0name={name}\0vermagic=7.3.4 SMP\0");
            fs::write(&path, crate::roots::kernel::tests::module(fields.as_bytes()))?;
            Ok(path)
        };
        let mut plan = Plan::default();
        plan.own(None, &file("mine")?, "7.3.4")?;
        plan.own(None, &file("vrnic")?, "7.3.4")?;
        let files: Vec<&str> = plan.files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(files, ["/vrnic/mine.ko", "/vrnic/vrnic.ko"]);
        assert!(plan.script.contains("insmod /vrnic/mine.ko") && !plan.script.contains("vrnic.ko"));
        assert!(plan.own(None, &file("other")?, "7.3.5").is_err());
        let again = plan.own(None, &file("mine")?, "7.3.4").map_err(|error| error.to_string());
        assert!(again.is_err_and(|it| it.contains("loads the module mine already")));
        Ok(())
    }

    #[test]
    fn no_text_of_a_module_reaches_a_shell() {
        assert!(check("bonding mode=1 miimon=100").is_ok());
        assert!(check("x; reboot").is_err() && check("$(x)").is_err() && check("").is_err());
    }
}
