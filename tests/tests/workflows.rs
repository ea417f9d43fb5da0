//! Checks of the action, of `ci/workflows`, and of documents with jobs, without a guest: the action
//! has an input for each option of the lab, the jobs give it only inputs that it has, and the pages
//! of projects name each port and each workflow.
//!
//! Shows: tools

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use vrnic_tests::repository::script::top;

/// The action whose steps the workflows use.
#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
    runs: Runs,
}

/// The steps of the action.
#[derive(Deserialize)]
struct Runs {
    steps: Vec<Script>,
}

/// A step of the action, as far as inputs reach it.
#[derive(Deserialize)]
struct Script {
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// An input of the action.
#[derive(Deserialize)]
struct Input {
    #[serde(default)]
    required: bool,
}

/// A workflow of a forge.
#[derive(Deserialize)]
struct Workflow {
    name: String,
    on: Vec<String>,
    jobs: BTreeMap<String, Job>,
}

/// The jobs of a workflow in a document.
#[derive(Deserialize)]
struct Jobs {
    jobs: BTreeMap<String, Job>,
}

/// One of its jobs.
#[derive(Deserialize)]
struct Job {
    steps: Vec<Step>,
}

/// A step of a job: a script, or an action with inputs.
#[derive(Deserialize)]
struct Step {
    uses: Option<String>,
    #[serde(default)]
    with: BTreeMap<String, String>,
}

/// Returns the names of the files in a folder of the repository.
fn names(folder: &str) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(top()?.join(folder)).context("no folder")?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Returns the text of a file of the repository.
fn read(path: &str) -> Result<String> {
    fs::read_to_string(top()?.join(path)).with_context(|| path.to_owned())
}

fn action() -> Result<Action> {
    Ok(serde_saphyr::from_str(&read("ci/action.yml")?)?)
}

/// Options of the lab that the action does not leave to its jobs: people at a terminal use some,
/// and the action always writes JUnit's file.
const WITHOUT_INPUT: [&str; 6] = ["enter", "help", "junit", "keep", "no-fail-on-warning", "shell"];

#[test]
fn the_action_has_an_input_for_each_option_of_the_lab() -> Result<()> {
    let (action, help) = (action()?, read("scripts/help/lab.txt")?);
    let lines = help.lines().map(|line| line.trim_start().trim_start_matches("-h, "));
    let options: Vec<_> = lines
        .filter_map(|line| line.strip_prefix("--")?.split(' ').next())
        .filter(|option| !option.is_empty())
        .collect();
    ensure!(options.len() > 20, "only {options:?}");
    for option in options.iter().filter(|option| !WITHOUT_INPUT.contains(option)) {
        let names = [(*option).to_owned(), format!("{option}s")];
        let has = names.iter().any(|name| action.inputs.contains_key(name));
        ensure!(has, "the action has no input for --{option}");
    }
    let passed: BTreeSet<_> = action.runs.steps.iter().flat_map(|step| &step.env).collect();
    for name in action.inputs.keys() {
        let variable = name.to_uppercase().replace('-', "_");
        let value = format!("${{{{ inputs.{name} }}}}");
        ensure!(passed.contains(&(&variable, &value)), "no step has {variable}: {value}");
    }
    Ok(())
}

/// Checks the inputs that a step gives to the action.
fn check_inputs(action: &Action, given: &BTreeMap<String, String>) -> Result<()> {
    for input in given.keys() {
        ensure!(action.inputs.contains_key(input), "no input {input}");
    }
    for (input, _) in action.inputs.iter().filter(|(_, input)| input.required) {
        ensure!(given.contains_key(input), "{input} is missing");
    }
    Ok(())
}

#[test]
fn jobs_of_documents_give_the_action_inputs_that_it_has() -> Result<()> {
    let action = action()?;
    for document in ["docs/ci.md", "docs/first-job.md", "docs/laboratory.md"] {
        let text = read(document)?;
        let blocks = text.split("```").skip(1).step_by(2);
        let blocks: Vec<_> = blocks.filter(|block| block.contains("uses: ./vrnic/ci")).collect();
        ensure!(!blocks.is_empty(), "{document} has no job");
        for block in blocks {
            let job: Jobs = serde_saphyr::from_str(block.trim_start_matches("yaml"))
                .with_context(|| format!("{document}: {block}"))?;
            let mut steps = job.jobs.values().flat_map(|job| &job.steps);
            let used = steps.find(|step| step.uses.as_deref() == Some("./vrnic/ci"));
            check_inputs(&action, &used.context("no action")?.with).context(document)?;
        }
    }
    Ok(())
}

#[test]
fn workflows_give_the_action_inputs_that_it_has() -> Result<()> {
    let action = action()?;
    for name in names("ci/workflows")? {
        let text = read(&format!("ci/workflows/{name}"))?;
        let workflow: Workflow = serde_saphyr::from_str(&text).with_context(|| name.clone())?;
        ensure!(workflow.name == "rdma" && workflow.on == ["pull_request"], "{name}: other head");
        ensure!(!workflow.jobs.is_empty(), "{name}: no job");
        for job in workflow.jobs.values() {
            let place = job.steps.iter().position(|step| {
                step.with.get("repository").is_some_and(|from| from == "OWNER/vrnic")
                    && step.with.get("path").is_some_and(|path| path == "vrnic")
            });
            let used = job.steps.iter().position(|step| step.uses.as_deref() == Some("./vrnic/ci"));
            let (place, used) = (place.context("no clone")?, used.context("no action")?);
            ensure!(place < used, "{name}: the action is used before it is there");
            check_inputs(&action, &job.steps[used].with).with_context(|| name.clone())?;
        }
    }
    Ok(())
}

#[test]
fn the_pages_name_each_port_and_each_workflow() -> Result<()> {
    let (users, maintainers) = (read("docs/projects.md")?, read("docs/for-maintainers.md")?);
    for port in names("ci/ports")? {
        ensure!(users.contains(&format!("| `{port}` |")), "docs/projects.md has no row of {port}");
        let entry = format!("**`{port}`**");
        ensure!(maintainers.contains(&entry), "docs/for-maintainers.md has no entry of {port}");
    }
    for workflow in names("ci/workflows")? {
        ensure!(maintainers.contains(&workflow), "docs/for-maintainers.md lacks {workflow}");
    }
    Ok(())
}
