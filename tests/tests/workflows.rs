//! Checks of `ci/workflows` and `docs/projects.md`, without a guest: the jobs for other projects
//! give the action only inputs that it has, and the page names each port and each workflow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use vrnic_tests::script::top;

/// The action whose steps the workflows use.
#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
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

#[test]
fn workflows_give_the_action_inputs_that_it_has() -> Result<()> {
    let read = |path: &str| Ok::<_, anyhow::Error>(fs::read_to_string(top()?.join(path))?);
    let action: Action = serde_saphyr::from_str(&read("ci/action.yml")?)?;
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
            let inputs = &job.steps[used].with;
            for input in inputs.keys() {
                ensure!(action.inputs.contains_key(input), "{name}: no input {input}");
            }
            for (input, _) in action.inputs.iter().filter(|(_, input)| input.required) {
                ensure!(inputs.contains_key(input), "{name}: {input} is missing");
            }
        }
    }
    Ok(())
}

#[test]
fn the_page_names_each_port_and_each_workflow() -> Result<()> {
    let page = fs::read_to_string(top()?.join("docs/projects.md"))?;
    for port in names("ci/ports")? {
        ensure!(page.contains(&format!("| `{port}` |")), "docs/projects.md has no row of {port}");
    }
    for workflow in names("ci/workflows")? {
        ensure!(page.contains(&workflow), "docs/projects.md does not name {workflow}");
    }
    Ok(())
}
