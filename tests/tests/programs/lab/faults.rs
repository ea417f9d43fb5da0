//! Faults during a program: rules that must hit, scenarios, rules that a program in a guest sets.
//!
//! Shows: tools

use std::fs;

use anyhow::{Result, ensure};
use vrnic_tests::repository::script::{said, top};

use super::lab;

const WRITES: [&str; 4] = ["--memory", "512M", "--peer", "ib_write_bw -F -D 14"];

/// A rule that hits changes nothing in the status of a command that survives it. One that hits
/// nothing fails the run, if it must hit.
///
/// Shows: tools: faults that must hit
pub(crate) fn must_hit() -> Result<()> {
    let rules = ["--fault", "hold-request by=1ms function=a every=50", "--must-hit"];
    let command = ["--", "ib_write_bw -F -D 14 $VRNIC_PEER"];
    let ran = lab(&[&WRITES[..], &rules, &command].concat())?;
    let shows = said(&ran).contains("the rule 'hold-request by=1ms function=a every=50' has hit ");
    ensure!(ran.status.success() && shows, "{}", said(&ran));
    let rules = ["--fault", "fail-qp function=a opcode=fetch-add", "--must-hit"];
    let ran = lab(&[&WRITES[..], &rules, &command].concat())?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(125) && text.contains("has hit nothing of 0"), "{text}");
    Ok(())
}

/// A scenario whose phases are as demanded passes, and one whose demand is not met fails with the
/// reason. One that makes no sense is refused with its line.
pub(crate) fn scenario() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("flap.toml");
    let junit = folder.path().join("junit.xml");
    let name = file.to_string_lossy();
    let text = "title = \"flap\"\n[[phase]]\nname = \"down\"\nlasts = \"8s\"\n\
                faults = [\"port-down function=a lasts=100ms pause=1s times=2\"]\n\
                expect = [\"a.link_downed = 2\", \"b.link_downed = 0\"]\n\
                [[phase]]\nname = \"well\"\nlasts = \"1s\"\nexpect = [\"a.tx_pkts > 0\"]\n";
    let options = ["--scenario", &name, "--junit", &junit.to_string_lossy()];
    let command = ["--", "ib_write_bw -F -D 14 $VRNIC_PEER"];
    let run = |text: &str| -> Result<_> {
        fs::write(&file, text)?;
        lab(&[&WRITES[..], &options, &command].concat())
    };
    let ran = run(text)?;
    ensure!(ran.status.success(), "{}", said(&ran));
    let results = fs::read_to_string(&junit)?;
    ensure!(results.contains("name=\"flap: down\"") && !results.contains("<failure"), "{results}");
    let ran = run(&text.replace("a.link_downed = 2", "a.link_downed = 3"))?;
    let why = said(&ran);
    let expected = "expected a.link_downed = 3, and it was 2";
    ensure!(ran.status.code() == Some(125) && why.contains(expected), "{why}");
    let ran = run(&text.replace("lasts=100ms", "lasts=fly"))?;
    let why = said(&ran);
    ensure!(why.contains("flap.toml:5: lasts=fly is not right"), "{why}");
    ensure!(!why.contains("booting"), "a guest was booted: {why}");
    Ok(())
}

/// Sets rules for its own device. Fails if they do not do what docs/faults.md says.
const PROGRAM: &str = r#"
import os, subprocess
from vrnicfault import Fault, Refused

device = os.environ["VRNIC_DEVICE"]
command = ["ibv_rc_pingpong", "-g", "1", "-n", "1", "127.0.0.1"]
with Fault(device, "fail-command status=no-resource command=create-cq nth=1") as fault:
    assert fault.hits() == 0
    text = subprocess.run(command, stderr=subprocess.PIPE, text=True).stderr
    assert "create CQ" in text, text
    fault.wait(1, 5)
    assert fault.hits() == 1
    second = Fault(device, "fail-qp nth=999")
    assert (second.hits(), fault.hits()) == (0, 1)
    second.clear()
    second.clear()
try:
    fault.hits()
    assert False, "the rule is still there"
except LookupError:
    pass
text = subprocess.run(command, stderr=subprocess.PIPE, text=True).stderr
assert "create CQ" not in text, text
try:
    Fault(device, "drop-message function=other")
    assert False, "a foreign function"
except Refused as refused:
    assert "own function" in str(refused), refused
print("all rules did what they should")
"#;

/// A program in Python sets rules for the device of its guest.
pub(crate) fn python() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = "vrnicfault.py";
    fs::copy(top()?.join("provider").join(library), folder.path().join(library))?;
    fs::write(folder.path().join("program.py"), PROGRAM)?;
    let copied = folder.path().to_string_lossy();
    let options = ["--guests", "1", "--memory", "768M", "--package", "python3-minimal"];
    let command = ["--copy", &copied, "--", "python3 program.py"];
    let ran = lab(&[&options[..], &command].concat())?;
    let text = said(&ran);
    ensure!(ran.status.success() && text.contains("all rules did what they should"), "{text}");
    Ok(())
}
