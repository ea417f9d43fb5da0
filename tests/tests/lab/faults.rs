//! Faults beside a program: rules that must hit, scenarios.

use std::fs;

use anyhow::{Result, ensure};
use vrnic_tests::script::said;

use crate::lab;

const WRITES: [&str; 4] = ["--memory", "512M", "--peer", "ib_write_bw -D 8"];

/// A rule that hits changes nothing in the status of a command that survives it. One that hits
/// nothing fails the run, if it must hit.
pub(crate) fn must_hit() -> Result<()> {
    let rules = ["--fault", "hold-request by=1ms function=a every=50", "--must-hit"];
    let command = ["--", "ib_write_bw -D 8 $VRNIC_PEER"];
    let ran = lab(&[&WRITES[..], &rules, &command].concat())?;
    ensure!(ran.status.success(), "{}", said(&ran));
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
    let text = "title = \"flap\"\n[[phase]]\nname = \"down\"\nlasts = \"3s\"\n\
                faults = [\"port-down function=a lasts=100ms pause=1s times=2\"]\n\
                expect = [\"a.link_downed = 2\", \"b.link_downed = 0\"]\n\
                [[phase]]\nname = \"well\"\nlasts = \"1s\"\nexpect = [\"a.tx_pkts > 0\"]\n";
    let options = ["--scenario", &name, "--junit", &junit.to_string_lossy()];
    let command = ["--", "ib_write_bw -D 8 $VRNIC_PEER"];
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
