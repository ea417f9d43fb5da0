//! The structure of SARIF 2.1.0 (OASIS), as far as the checker uses it. Every field that is not
//! here is refused, and so is what the standard forbids in those that are.

use serde::Deserialize;
use serde_json::Value;

/// `sarifLog` (3.13).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "$schema")]
    schema: String,
    version: String,
    runs: Vec<Run>,
}

/// `run` (3.14).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Run {
    tool: Tool,
    column_kind: String,
    results: Vec<Outcome>,
}

/// `tool` (3.18).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    driver: Driver,
}

/// `toolComponent` (3.19).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Driver {
    name: String,
    version: String,
    rules: Vec<Descriptor>,
}

/// `reportingDescriptor` (3.49).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    id: String,
    #[serde(rename = "shortDescription")]
    _short_description: Message,
    #[serde(rename = "help")]
    _help: Message,
    properties: serde_json::Map<String, Value>,
}

/// `message` (3.11).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    #[serde(rename = "text")]
    _text: String,
}

/// `result` (3.27).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Outcome {
    rule_id: String,
    rule_index: usize,
    level: String,
    #[serde(rename = "message")]
    _message: Message,
    locations: Vec<Location>,
    related_locations: Vec<Location>,
    stacks: Vec<Stack>,
    partial_fingerprints: std::collections::BTreeMap<String, String>,
}

/// `location` (3.28).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Location {
    physical_location: Physical,
    #[serde(rename = "logicalLocations")]
    _logical_locations: Vec<Logical>,
    #[serde(rename = "message")]
    _message: Option<Message>,
}

/// `physicalLocation` (3.29).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Physical {
    artifact_location: Artifact,
    region: Option<Region>,
}

/// `artifactLocation` (3.4).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Artifact {
    uri: String,
    uri_base_id: Option<String>,
}

/// `region` (3.30).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Region {
    start_line: u32,
}

/// `logicalLocation` (3.33).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Logical {
    #[serde(rename = "fullyQualifiedName")]
    _fully_qualified_name: String,
}

/// `stack` (3.44).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stack {
    #[serde(rename = "message")]
    _message: Message,
    frames: Vec<Frame>,
}

/// `stackFrame` (3.45).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    location: Location,
    #[serde(rename = "module")]
    _module: String,
}

/// Returns the results of a document: the rule of each, and the path and line of its place.
///
/// # Errors
/// Says what the standard forbids in the document.
pub fn results(text: &str) -> Result<Vec<String>, String> {
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_known = document.version == "2.1.0" && document.schema.ends_with("/sarif-2.1.0.json");
    need(is_known, || format!("the version {} of {}", document.version, document.schema))?;
    let mut found = Vec::new();
    for run in &document.runs {
        let Driver { name, version, rules } = &run.tool.driver;
        need(!name.is_empty() && !version.is_empty(), || "a driver without a name".to_owned())?;
        need(run.column_kind == "utf16CodeUnits", || format!("columns of {}", run.column_kind))?;
        let mut names: Vec<_> = rules.iter().map(|rule| &rule.id).collect();
        names.sort();
        names.dedup();
        need(names.len() == rules.len(), || "two rules with one name".to_owned())?;
        for result in &run.results {
            found.push(check(result, rules)?);
        }
    }
    Ok(found)
}

fn need(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// Checks a result, and returns its rule and place.
fn check(result: &Outcome, rules: &[Descriptor]) -> Result<String, String> {
    let rule = rules.get(result.rule_index).ok_or("a result of a rule that does not exist")?;
    need(rule.id == result.rule_id, || format!("{} is not {}", result.rule_id, rule.id))?;
    let level = &result.level;
    need(["none", "note", "warning", "error"].contains(&level.as_str()), || level.clone())?;
    need(!result.partial_fingerprints.is_empty(), || "no fingerprint".to_owned())?;
    let frames = result.stacks.iter().flat_map(|stack| &stack.frames);
    let locations = result.locations.iter().chain(&result.related_locations);
    for location in locations.chain(frames.map(|frame| &frame.location)) {
        is_place(&location.physical_location)?;
    }
    let place = result.locations.first().map(|location| &location.physical_location);
    let line = place.and_then(|place| place.region.as_ref()).map(|region| region.start_line);
    let uri = place.map(|place| format!(" {}", place.artifact_location.uri)).unwrap_or_default();
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let is_described = !rule.properties.is_empty();
    need(is_described, || format!("{} has no number", rule.id))?;
    Ok(format!("{}{uri}{line}", result.rule_id))
}

/// Checks a place: lines begin with 1, and the URI has no sign that must be escaped. One that is
/// relative to a folder has no scheme (3.4.3).
fn is_place(place: &Physical) -> Result<(), String> {
    let Artifact { uri, uri_base_id } = &place.artifact_location;
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "-._~:/%".contains(sign);
    need(!uri.is_empty() && uri.chars().all(is_sign), || format!("the URI '{uri}'"))?;
    let is_relative = !uri.contains(':') && !uri.starts_with('/');
    need(uri_base_id.is_none() || is_relative, || format!("'{uri}' is not relative"))?;
    let line = place.region.as_ref().map(|region| region.start_line);
    need(line != Some(0), || "lines begin with 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document with one result.
    const DOCUMENT: &str = r#"{"$schema":"https://json.schemastore.org/sarif-2.1.0.json",
        "version":"2.1.0","runs":[{"tool":{"driver":{"name":"a","version":"1","rules":[{"id":"r",
        "shortDescription":{"text":"t"},"help":{"text":"t"},"properties":{"number":1}}]}},
        "columnKind":"utf16CodeUnits","results":[{"ruleId":"r","ruleIndex":0,"level":"error",
        "message":{"text":"t"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"a.c"},
        "region":{"startLine":1}},"logicalLocations":[]}],"relatedLocations":[],"stacks":[],
        "partialFingerprints":{"x":"y"}}]}]}"#;

    #[test]
    fn what_the_standard_forbids_is_refused() {
        assert_eq!(results(DOCUMENT), Ok(vec!["r a.c:1".to_owned()]));
        for (right, wrong) in [
            ("\"2.1.0\"", "\"2.0.0\""),
            ("\"ruleIndex\":0", "\"ruleIndex\":1"),
            ("\"ruleId\":\"r\"", "\"ruleId\":\"s\""),
            ("\"error\"", "\"mistake\""),
            ("\"startLine\":1", "\"startLine\":0"),
            ("\"a.c\"", "\"a b.c\""),
            ("\"message\":{\"text\":\"t\"},\"loc", "\"loc"),
            ("\"stacks\":[]", "\"stack\":[]"),
        ] {
            assert!(DOCUMENT.contains(right), "{right}");
            assert!(results(&DOCUMENT.replace(right, wrong)).is_err(), "{wrong}");
        }
    }
}
