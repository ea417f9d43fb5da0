//! The interface of a release, as bindgen sees its headers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use vrnic_tests::repository::script::{succeed, top};

use super::{gather, items};

/// What the plugin uses of a release.
pub(crate) struct Interface {
    /// The release, such as 56.1.
    pub(crate) release: String,
    /// The number of the private interface.
    pub(crate) number: u32,
    /// Sizes, alignments and offsets, by what bindgen calls them, such as `Size of verbs_qp` and
    /// `Offset of field: verbs_qp::comp_mask`.
    pub(crate) layout: BTreeMap<String, usize>,
    /// The types of functions, by name.
    pub(crate) functions: BTreeMap<String, String>,
}

impl Interface {
    /// Reads the headers of a source. `folder` is for links to them.
    pub(crate) fn read(source: &Path, folder: &Path) -> Result<Self> {
        let version = gather::version(source)?;
        fs::create_dir_all(folder)?;
        let include = folder.join("include");
        gather::gather(source, &include)?;
        let header = folder.join("header.h");
        fs::write(&header, "#include <stddef.h>\n#include <infiniband/driver.h>\n")?;
        let text = "cd \"$1\"; . scripts/lib/common.sh; shift; in_root bindgen \"$@\"";
        let mut command = Command::new("bash");
        command.args(["-euc", text, "bindgen"]).arg(top()?).arg(&header);
        command.args(["--allowlist-function", items::FUNCTIONS]);
        command.args(["--allowlist-type", items::TYPES, "--no-doc-comments", "--"]);
        command.arg(format!("-I{}", include.display()));
        command.arg(format!("-idirafter{}", source.join("kernel-headers").display()));
        let bindings = succeed(&mut command)?;
        Ok(Self {
            release: version.release,
            number: version.abi.parse()?,
            layout: layout(&bindings)?,
            functions: functions(&bindings),
        })
    }

    /// Returns the first number of the release.
    pub(crate) fn major(&self) -> Result<u32> {
        let major = self.release.split('.').next().context("a number")?;
        Ok(major.parse()?)
    }
}

/// Returns the assertions in bindings: `["Size of a"][size_of::<a>() - 8usize];`.
fn layout(bindings: &str) -> Result<BTreeMap<String, usize>> {
    let mut layout = BTreeMap::new();
    for assertion in bindings.split("[\"").skip(1) {
        let (name, rest) = assertion.split_once('"').context("an end of the name")?;
        let expression = rest.split(';').next().unwrap_or_default();
        let number = expression.rsplit_once("usize").and_then(|(text, _)| text.rsplit(' ').next());
        let number = number.with_context(|| format!("no number in {expression}"))?;
        layout.insert(name.to_owned(), number.parse()?);
    }
    Ok(layout)
}

/// Returns the functions that bindings declare.
fn functions(bindings: &str) -> BTreeMap<String, String> {
    let declarations = bindings.split("pub fn ").skip(1).filter_map(|text| {
        let (declaration, _) = text.split_once(';')?;
        let (name, _) = declaration.split_once('(')?;
        // Methods have a body before the first semicolon.
        let body = declaration.contains('{');
        let text: String = declaration.split_whitespace().collect();
        // A list over several lines ends with a comma.
        (!body).then(|| (name.trim().to_owned(), text.replace(",)", ")")))
    });
    declarations.collect()
}
