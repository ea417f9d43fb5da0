//! Lints that run while tests do.
//!
//! Shows: tools

use anyhow::{Result, ensure};

use crate::functions;

#[test]
fn lints_begin_when_the_first_test_runs_and_leave_their_status() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = r#"
        LINTS=(first second) notes=$VRNIC_CACHE/notes log=$VRNIC_CACHE/log
        lint() { grep -q Running "$log" || echo "$1 is too early"; echo "$1"; [ "$1" = first ]; }
        mkdir "$notes"
        echo "   Compiling vrnic-abi v0.2.0" >"$log"
        lint_meanwhile "$notes" "$log" &
        sleep 0.7
        echo "     Running tests/requests.rs" >>"$log"
        wait
        echo notes; cat "$notes"/[01]; cut -d' ' -f2 "$notes"/[01].end
    "#;
    // What has failed is also printed at once, to the standard error, which comes last here.
    let said = functions(&["lints"], text, folder.path())?;
    ensure!(said == "notes\nfirst\nsecond\n0\n1\nsecond\n", "{said}");
    Ok(())
}

#[test]
fn lints_run_where_nothing_could_be_built() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = r#"
        LINTS=(first) notes=$VRNIC_CACHE/notes log=$VRNIC_CACHE/log
        lint() { echo "$1"; }
        mkdir "$notes"
        : >"$log"
        lint_meanwhile "$notes" "$log" &
        touch "$notes/begin"
        wait
        cat "$notes/0"
    "#;
    let said = functions(&["lints"], text, folder.path())?;
    ensure!(said == "first\n", "{said}");
    Ok(())
}
