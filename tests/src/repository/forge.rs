//! The runner of a forge, as far as `ci/action.yml` needs it: runs all steps of the action as a
//! job does. Each script gets a separate bash, with inputs, outputs of earlier steps, and the
//! folder of the action in its environment. The forge's own cache is a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::repository::script::{run, succeed, top};

/// The only action that the steps may use, and the output that it sets.
const CACHE: &str = "actions/cache@v4";
const HIT: &str = "cache-hit";

/// A composite action.
#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
    runs: Runs,
}

/// An input of the action that a job can set.
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
    id: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
    run: Option<String>,
    shell: Option<String>,
    uses: Option<String>,
    #[serde(default, rename = "with")]
    given: BTreeMap<String, String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// The inputs of a job and their names.
pub type Inputs<'a> = &'a [(&'a str, &'a str)];

/// A machine of a forge, on which a job runs.
pub struct Machine {
    /// The folder of the job.
    pub work: PathBuf,
    home: PathBuf,
    _dir: TempDir,
}

/// What a job has left.
#[derive(Debug)]
pub struct Done {
    /// The output of the last script.
    pub last: Output,
    /// The names of the scripts that were run, such as `kvm`.
    pub steps: Vec<String>,
    /// The text that the forge would show on the page of the job.
    pub page: String,
}

impl Machine {
    /// Returns a machine whose user has nothing yet.
    pub fn new() -> Result<Self> {
        // Not in /tmp, which may be in memory.
        let dir = TempDir::new_in("/var/tmp")?;
        let (work, home) = (dir.path().join("work"), dir.path().join("home"));
        fs::create_dir(&work)?;
        fs::create_dir_all(home.join(".cache"))?;
        Ok(Self { work, home, _dir: dir })
    }

    /// Gives the user what this machine's cache has, by links, so that the forge's cache of it is
    /// small.
    pub fn with_cache(self) -> Result<Self> {
        let own = std::env::var_os("VRNIC_CACHE").context("VRNIC_CACHE is not set")?;
        let cache = self.home.join(".cache/vrnic");
        fs::create_dir(&cache)?;
        for entry in fs::read_dir(Path::new(&own))? {
            let entry = entry?;
            if entry.path().is_dir() {
                std::os::unix::fs::symlink(
                    entry.path().canonicalize()?,
                    cache.join(entry.file_name()),
                )?;
            }
        }
        Ok(self)
    }

    /// Returns the path of a file below the user's folder.
    #[must_use]
    pub fn home(&self, file: &str) -> PathBuf {
        self.home.join(file)
    }

    /// Runs the steps of the action, up to the first script that fails. `store` is the forge's
    /// cache, which the job fills at its end.
    pub fn act(&self, store: &Path, given: Inputs<'_>) -> Result<Done> {
        let folder = top()?.join("ci");
        let text = fs::read_to_string(folder.join("action.yml"))?;
        let action: Action = serde_saphyr::from_str(&text)?;
        ensure!(action.runs.using == "composite", "the action has another form");
        for (name, _) in given {
            ensure!(action.inputs.contains_key(*name), "the action has no input {name}");
        }
        let mut job = Job { action: &action, folder, given, outputs: BTreeMap::new() };
        let (mut last, mut steps, mut kept) = (None, Vec::new(), Vec::new());
        for step in &action.runs.steps {
            if let Some(condition) = &step.condition
                && !job.holds(condition)?
            {
                continue;
            }
            if let Some(used) = &step.uses {
                ensure!(used == CACHE, "the forge's own action {used} is not known");
                kept.extend(self.restore(store, step, &mut job)?);
                continue;
            }
            let script = step.run.as_deref().context("a step without a script")?;
            steps.push(script.split_whitespace().last().unwrap_or_default().to_owned());
            let ran = self.script(script, step, &mut job)?;
            if !ran.status.success() {
                return Ok(Done { last: ran, steps, page: self.page() });
            }
            last = Some(ran);
        }
        for Kept { from, into } in kept {
            if from.exists() {
                fs::copy(from, into)?;
            }
        }
        Ok(Done { last: last.context("the action has no script")?, steps, page: self.page() })
    }

    fn page(&self) -> String {
        fs::read_to_string(self.home.join("page.md")).unwrap_or_default()
    }

    /// Runs the script of a step.
    fn script(&self, script: &str, step: &Step, job: &mut Job<'_>) -> Result<Output> {
        ensure!(step.shell.as_deref() == Some("bash"), "a step without bash");
        ensure!(!script.contains("${{"), "an input becomes part of a script");
        let output = self.home.join("output");
        fs::write(&output, "")?;
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]);
        for (name, text) in &step.env {
            command.env(name, job.expand(text)?);
        }
        // Cargo and rustup of this user are not used.
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let own = std::env::var_os(name).map(PathBuf::from);
            let usual = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(folder);
            command.env(name, own.unwrap_or_else(usual));
        }
        command.env("HOME", &self.home).env_remove("VRNIC_CACHE").env_remove("XDG_CACHE_HOME");
        command.env("GITHUB_OUTPUT", &output);
        command.env("GITHUB_STEP_SUMMARY", self.home.join("page.md"));
        let ran = run(command.current_dir(&self.work))?;
        for line in fs::read_to_string(&output)?.lines() {
            let (name, value) = line.split_once('=').context("an output without a value")?;
            let id = step.id.clone().context("a step without a name has an output")?;
            job.outputs.insert((id, name.to_owned()), value.to_owned());
        }
        Ok(ran)
    }

    /// Puts a file of the forge's cache in its place. Returns what the job keeps at its end.
    fn restore(&self, store: &Path, step: &Step, job: &mut Job<'_>) -> Result<Option<Kept>> {
        let given = |name: &str| -> Result<String> {
            job.expand(step.given.get(name).with_context(|| format!("{CACHE} without {name}"))?)
        };
        let (path, key) = (given("path")?, given("key")?);
        ensure!(!key.is_empty() && !key.contains('/'), "the cache has no key: '{key}'");
        let path = path.strip_prefix("~/").context("the cache is not in the user's folder")?;
        let (from, into) = (self.home.join(path), store.join(key));
        let id = step.id.clone().context("the cache has no name")?;
        if into.exists() {
            fs::copy(&into, &from)?;
            job.outputs.insert((id, HIT.to_owned()), "true".to_owned());
            return Ok(None);
        }
        Ok(Some(Kept { from, into }))
    }
}

/// A file that the forge's cache gets at the end of a job.
struct Kept {
    from: PathBuf,
    into: PathBuf,
}

/// A running job.
struct Job<'a> {
    action: &'a Action,
    folder: PathBuf,
    given: Inputs<'a>,
    /// The outputs of steps, by the names of the step and of the output.
    outputs: BTreeMap<(String, String), String>,
}

impl Job<'_> {
    /// Returns the value of an expression. An output that no step has set is empty.
    fn value(&self, expression: &str) -> Result<String> {
        let parts: Vec<&str> = expression.split('.').collect();
        match parts[..] {
            ["github", "action_path"] => Ok(self.folder.to_string_lossy().into_owned()),
            ["inputs", name] => {
                let input =
                    self.action.inputs.get(name).with_context(|| format!("no input {name}"))?;
                let given = self.given.iter().find(|(key, _)| *key == name);
                let default =
                    || input.default.clone().with_context(|| format!("{name} is missing"));
                given.map_or_else(default, |(_, value)| Ok((*value).to_owned()))
            }
            ["steps", id, "outputs", name] => {
                let output = self.outputs.get(&(id.to_owned(), name.to_owned()));
                Ok(output.cloned().unwrap_or_default())
            }
            _ => bail!("unknown expression {expression}"),
        }
    }

    /// Returns whether a condition holds: comparisons, all of which must hold.
    fn holds(&self, condition: &str) -> Result<bool> {
        let text = condition.trim();
        let text = text.strip_prefix("${{").and_then(|it| it.strip_suffix("}}")).unwrap_or(text);
        for comparison in text.split("&&") {
            let (left, right, equal) = match comparison.split_once("!=") {
                Some((left, right)) => (left, right, false),
                None => {
                    let (left, right) =
                        comparison.split_once("==").context("a condition of another form")?;
                    (left, right, true)
                }
            };
            let right = right.trim().strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
            let right = right.with_context(|| format!("no text in '{comparison}'"))?;
            if (self.value(left.trim())? == right) != equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Replaces expressions, as in `${{ inputs.command }}`, by their values.
    fn expand(&self, text: &str) -> Result<String> {
        let mut parts = text.split("${{");
        let mut expanded = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once("}}").context("an expression has no end")?;
            expanded.push_str(&self.value(expression.trim())?);
            expanded.push_str(rest);
        }
        Ok(expanded)
    }
}

/// Returns the names of the files in an archive of the forge's cache.
pub fn packed(store: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(store)? {
        let list = succeed(Command::new("tar").arg("-tf").arg(entry?.path()))?;
        names.extend(list.lines().map(str::to_owned));
    }
    Ok(names)
}
