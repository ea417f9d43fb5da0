//! Runs the steps of `ci/action.yml` as the runner of a forge does: inputs and the folder of the
//! action are put into the environment, and a separate bash runs each script. Steps that use other
//! actions are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use vrnic_tests::script::{run, said, top, with_figures};

/// A composite action.
#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
    runs: Runs,
}

/// The inputs of the action that a job can set.
#[derive(Deserialize)]
struct Input {
    default: Option<String>,
}

/// The steps of the action.
#[derive(Deserialize)]
struct Runs {
    using: String,
    steps: Vec<Step>,
}

/// A script, or the use of another action.
#[derive(Deserialize)]
struct Step {
    run: Option<String>,
    shell: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// The inputs of a job and their names.
type Inputs<'a> = &'a [(&'a str, &'a str)];

/// Runs the steps of the action in `work`, up to the first step that fails. Returns the output of
/// the last step.
fn act(work: &Path, given: Inputs<'_>) -> Result<Output> {
    let folder = top()?.join("ci");
    let text = fs::read_to_string(folder.join("action.yml"))?;
    let action: Action = serde_saphyr::from_str(&text)?;
    ensure!(action.runs.using == "composite", "the action has another form");
    for (name, _) in given {
        ensure!(action.inputs.contains_key(*name), "the action has no input {name}");
    }
    let value = |expression: &str| match expression.split_once('.') {
        Some(("github", "action_path")) => Ok(folder.to_string_lossy().into_owned()),
        Some(("inputs", name)) => {
            let input = action.inputs.get(name).with_context(|| format!("no input {name}"))?;
            let given = given.iter().find(|(key, _)| *key == name);
            let default = || input.default.clone().with_context(|| format!("{name} is missing"));
            given.map_or_else(default, |(_, value)| Ok((*value).to_owned()))
        }
        _ => bail!("unknown expression {expression}"),
    };
    let mut last = None;
    for step in &action.runs.steps {
        let Some(script) = &step.run else { continue };
        ensure!(step.shell.as_deref() == Some("bash"), "a step without bash");
        ensure!(!script.contains("${{"), "an input becomes part of a script");
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]);
        for (name, text) in &step.env {
            command.env(name, expand(text, value)?);
        }
        command.env("GITHUB_STEP_SUMMARY", work.join("page.md"));
        let ran = run(command.current_dir(work))?;
        if !ran.status.success() {
            return Ok(ran);
        }
        last = Some(ran);
    }
    last.context("the action has no script")
}

/// Replaces expressions, as in `${{ inputs.command }}`, by their values.
fn expand(text: &str, value: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut parts = text.split("${{");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (expression, rest) = part.split_once("}}").context("an expression has no end")?;
        expanded.push_str(&value(expression.trim())?);
        expanded.push_str(rest);
    }
    Ok(expanded)
}

/// A job copies a script with a space in its name, and keeps the files that the script has written.
/// Its page has a table of the commands.
pub(crate) fn perftest() -> Result<()> {
    let work = tempfile::tempdir()?;
    fs::create_dir(work.path().join("mine"))?;
    let script = "ib_write_bw -n 100 $VRNIC_PEER | tee $VRNIC_OUTPUT/table\n";
    fs::write(work.path().join("mine/a test.sh"), script)?;
    let given = [
        ("command", "sh 'a test.sh' && test \"$(uname -n)\" = a"),
        ("peer", "ib_write_bw -n 100"),
        ("copy", "mine"),
        ("memory", "512M"),
    ];
    let ran = with_figures(|| act(work.path(), &given))?;
    ensure!(ran.status.success(), "{}", said(&ran));
    let table = fs::read_to_string(work.path().join("vrnic-output/a/table"))?;
    ensure!(table.contains("BW average") && table.contains(" 65536 "), "no table: {table}");
    let page = fs::read_to_string(work.path().join("page.md"))?;
    ensure!(page.contains("| a | `sh 'a test.sh'") && page.contains("| passed |"), "{page}");
    let junit = fs::read_to_string(work.path().join("vrnic-output/junit.xml"))?;
    ensure!(junit.contains("failures=\"0\""), "{junit}");
    Ok(())
}

/// The job fails with the command's status. Only the guest's shell interprets the text of the
/// command.
pub(crate) fn failure() -> Result<()> {
    let work = tempfile::tempdir()?;
    let command = "ibv_devices | grep -c 0 >$VRNIC_OUTPUT/devices; exit $((40 + 3))";
    let ran = act(work.path(), &[("command", command), ("output", "kept here")])?;
    ensure!(ran.status.code() == Some(43), "not the command's status: {}", said(&ran));
    let devices = fs::read_to_string(work.path().join("kept here/a/devices"))?;
    ensure!(devices.trim() == "1", "not one device: {devices}");
    Ok(())
}
