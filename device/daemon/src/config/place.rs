//! Lines of the file, for errors that are found after it has been parsed.

use std::path::Path;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::error::ConfigError;

/// The parts of the file whose lines are needed.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    function: Vec<Spanned<Function>>,
}

#[derive(Deserialize)]
struct Function {
    resources: Option<Spanned<Value>>,
}

/// Returns an error about a function, by its number, with its line if the function is in the file.
pub(super) fn in_file(file: Option<&Path>, function: usize, error: ConfigError) -> ConfigError {
    match file.and_then(|path| Some((path, line(path, function)?))) {
        Some((path, line)) => {
            ConfigError::Line { path: path.to_owned(), line, error: Box::new(error) }
        }
        None => error,
    }
}

/// Returns the line of a function's resources or, if it has none of its own, of the function.
fn line(path: &Path, function: usize) -> Option<usize> {
    let text = std::fs::read_to_string(path).ok()?;
    let file: File = toml::from_str(&text).ok()?;
    let function = file.function.get(function)?;
    let resources = function.get_ref().resources.as_ref();
    let start = resources.map_or_else(|| function.span(), Spanned::span).start;
    Some(text.get(..start)?.matches('\n').count() + 1)
}
