//! Whether a script builds something.
//!
//! Shows: tools

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::functions;

/// Runs shell text that has a clone with two sources, whose build prints a line and writes two
/// files, and `prepare`, which is what scripts call. Returns what it prints.
fn builds(text: &str, folder: &Path) -> Result<String> {
    let setting = r#"
        VRNIC_TOP=$VRNIC_CACHE/clone VRNIC_BUILD=$VRNIC_CACHE/clone/build
        VRNIC_GUEST=$VRNIC_CACHE/guest VRNIC_MODULES=$VRNIC_CACHE/modules VRNIC_TOOLROOT=$VRNIC_CACHE/root
        mkdir -p "$VRNIC_TOP"/{abi,driver} "$VRNIC_BUILD" "$VRNIC_GUEST" "$VRNIC_MODULES" "$VRNIC_TOOLROOT/etc"
        touch "$VRNIC_TOOLROOT/etc/vrnic-complete" "$VRNIC_GUEST"/{complete,base.cpio,vmlinuz}
        touch "$VRNIC_TOP"/{Cargo.lock,abi/lib.rs,driver/one.c}
        outputs_all() { printf '%s\n' "$VRNIC_BUILD"/{one,two}; }
        make() { echo built; echo "${built:-text}" | tee "$VRNIC_BUILD/one" >"$VRNIC_BUILD/two"; }
        check_machine() { true; }
        prepare() { unless_prepared all make; echo "$1"; }
        prepare first
        prepare again
    "#;
    functions(&[], &format!("{setting}\n{text}\nprepare last"), folder)
}

#[test]
fn nothing_is_built_where_nothing_has_changed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let said = builds("prepare third", folder.path())?;
    ensure!(said == "built\nfirst\nagain\nthird\nlast\n", "{said}");
    Ok(())
}

/// Among the changes are those that leave every file older than what was built of it.
#[test]
fn every_change_is_built() -> Result<()> {
    for change in [
        "echo more >>$VRNIC_TOP/driver/one.c",
        "touch -d '10 days ago' $VRNIC_TOP/abi/lib.rs",
        "touch -d '10 days ago' $VRNIC_TOP/Cargo.lock",
        "touch $VRNIC_TOP/driver/two.c",
        "mv $VRNIC_TOP/driver/{one,three}.c",
        "rm $VRNIC_TOP/abi/lib.rs",
        "rm $VRNIC_BUILD/two",
        "echo of another build >$VRNIC_BUILD/two",
        "rm $VRNIC_TOOLROOT/etc/vrnic-complete",
        "echo another guest >$VRNIC_GUEST/vmlinuz",
        "rm -r $VRNIC_MODULES",
        "export RUSTFLAGS=-Copt-level=1",
        "export CARGO_TARGET_DIR=/somewhere",
        "export CARGO_PROFILE_RELEASE_DEBUG=2",
        "rustc() { echo another compiler; }",
        "VRNIC_TOOLROOT=$VRNIC_CACHE/other; mkdir -p $VRNIC_TOOLROOT/etc; touch $VRNIC_TOOLROOT/etc/vrnic-complete",
    ] {
        let folder = tempfile::tempdir()?;
        let said = builds(change, folder.path())?;
        ensure!(said == "built\nfirst\nagain\nbuilt\nlast\n", "{change}: {said}");
    }
    Ok(())
}

#[test]
fn a_build_that_was_not_complete_is_tried_again() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "echo 1 >>$VRNIC_TOP/abi/lib.rs\n\
                make() { echo half; rm $VRNIC_BUILD/two; }\n\
                prepare third\n\
                make() { echo whole; touch $VRNIC_BUILD/two; }\n\
                prepare fourth\n\
                prepare fifth\n\
                echo 2 >>$VRNIC_TOP/abi/lib.rs\n\
                make() { echo fails; exit 1; }\n\
                (prepare never) || true\n\
                make() { echo built; }";
    let said = builds(text, folder.path())?;
    let lines = "built first again half third whole fourth fifth fails built last";
    ensure!(said.split_whitespace().eq(lines.split(' ')), "{said}");
    Ok(())
}

#[test]
fn what_changes_during_a_build_is_built_by_the_next_one() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "echo 1 >>$VRNIC_TOP/abi/lib.rs\n\
                make() { echo slow; echo 2 >>$VRNIC_TOP/abi/lib.rs; }\n\
                prepare third\n\
                make() { echo built; }";
    let said = builds(text, folder.path())?;
    ensure!(said == "built\nfirst\nagain\nslow\nthird\nbuilt\nlast\n", "{said}");
    Ok(())
}

#[test]
fn folders_that_a_start_uses_stay_in_the_cache() -> Result<()> {
    let folder = tempfile::tempdir()?;
    builds("touch -d '40 days ago' $VRNIC_GUEST $VRNIC_TOOLROOT", folder.path())?;
    for name in ["guest", "root"] {
        let age = fs::metadata(folder.path().join(name))?.modified()?.elapsed()?;
        ensure!(age.as_secs() < 3600, "{name} is {age:?} old");
    }
    fs::metadata(folder.path().join("clone/build/prepared-all")).context("no note")?;
    Ok(())
}
