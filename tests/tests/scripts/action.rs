//! The steps of the action. Programs of the test take the place of sudo and podman.
//!
//! Shows: tools

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use vrnic_tests::repository::script::{run, top};

/// Runs a step of the action with these scripts in place of the machine's programs. Returns its
/// exit status and what it prints.
fn action(
    work: &Path,
    step: &str,
    programs: &[(&str, &str)],
    inputs: &[(&str, &str)],
) -> Result<(Option<i32>, String)> {
    let bin = work.join("bin");
    fs::create_dir_all(&bin)?;
    for (name, text) in programs {
        let file = bin.join(name);
        fs::write(&file, format!("#!/bin/bash\n{text}\n"))?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new(top()?.join("ci/action.sh"));
    command.arg(step).current_dir(work).env_clear();
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("HOME", work);
    for name in [
        "CONTAINER",
        "PREBUILT",
        "PEER",
        "READY",
        "MEMORY",
        "PACKAGES",
        "ROOT",
        "DISK",
        "KERNEL",
        "MODULES",
        "MODULE_FILES",
        "UPLINKS",
        "FAULTS",
        "MUST_HIT",
        "SCENARIO",
        "COPY",
        "TIMING",
        "PCAP",
        "PRELOAD_VERBS",
        "CHECK",
        "FAIL_ON_WARNING",
    ] {
        command.env(name, "");
    }
    command.env("OUTPUT", "out").env("COMMAND", "true");
    for name in ["GUESTS", "ADAPTERS", "CPUS", "IMAGE", "PERSONALITY", "TIMEOUT"] {
        command.env(name, "x");
    }
    let output = run(command.envs(inputs.iter().copied()))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn the_action_gives_a_container_the_folders_of_its_inputs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let work = folder.path().canonicalize()?;
    fs::create_dir_all(work.join("in here"))?;
    // This podman prints its arguments, one in each line.
    let podman = ("podman", "printf '<%s>\\n' \"$@\"; exit 43");
    let docker = ("docker", "exit 1");
    fs::write(work.join("root.tar"), "")?;
    let more = [("ROOT", "root.tar"), ("MODULES", "siw tls"), ("FAIL_ON_WARNING", "false")];
    let more = [&more[..], &[("CHECK", "hints")]].concat();
    let inputs = [("CONTAINER", "image"), ("COPY", "in here"), ("VRNIC_ACCEL", "tcg")];
    let inputs = [&inputs[..], &more].concat();
    let (status, text) = action(&work, "lab", &[podman, docker], &inputs)?;
    ensure!(status == Some(43), "{status:?}: {text}");
    let top = work.display();
    for part in [
        format!("<--volume>\n<{top}/out:{top}/out>\n"),
        format!("<--volume>\n<{top}/in here:{top}/in here:ro>\n"),
        format!("<--output>\n<{top}/out>\n"),
        format!("<--copy>\n<{top}/in here>\n<--root>\n<{top}/root.tar>\n<-->\n<true>\n"),
        format!("<--volume>\n<{top}/root.tar:{top}/root.tar:ro>\n"),
        "<--module>\n<siw>\n<--module>\n<tls>\n<--check>\n<hints>\n<--no-fail-on-warning>\n"
            .to_owned(),
        "<--env>\n<VRNIC_ACCEL=tcg>\n".to_owned(),
    ] {
        ensure!(text.contains(&part), "no {part}:\n{text}");
    }
    Ok(())
}

#[test]
fn the_action_starts_guests_from_a_disk_instead_of_an_image() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let work = folder.path().canonicalize()?;
    fs::write(work.join("disk"), "")?;
    let programs = [("podman", "printf '<%s>\\n' \"$@\""), ("docker", "exit 1")];
    let inputs = [("CONTAINER", "image"), ("DISK", "disk")];
    let (status, text) = action(&work, "lab", &programs, &inputs)?;
    let top = work.display();
    ensure!(status == Some(0), "{status:?}: {text}");
    ensure!(text.contains(&format!("<--volume>\n<{top}/disk:{top}/disk:ro>\n")), "{text}");
    ensure!(text.contains(&format!("<--disk>\n<{top}/disk>\n")), "{text}");
    ensure!(!text.contains("<--image>"), "{text}");
    let inputs = [("CONTAINER", "image"), ("DISK", "none")];
    let (status, text) = action(&work, "lab", &programs, &inputs)?;
    ensure!(status == Some(1) && text.contains("which is not a file"), "{status:?}: {text}");
    Ok(())
}

#[test]
fn the_action_gives_files_of_root_to_the_user_of_the_job() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // The user of the job is not the owner of the written files.
    let programs = [("id", "echo 4242"), ("docker", "exit 1"), ("podman", "echo \"$@\"")];
    let (status, text) = action(folder.path(), "lab", &programs, &[("CONTAINER", "image")])?;
    let last = text.lines().last().unwrap_or_default();
    ensure!(status == Some(0), "{status:?}: {text}");
    ensure!(last.contains("--entrypoint chown image -R 4242:4242 /"), "{text}");
    Ok(())
}

#[test]
fn the_action_says_what_it_needs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sudo = ("sudo", "exit 1");
    let (status, text) = action(folder.path(), "lab", &[("id", "echo 4242"), sudo], &[])?;
    ensure!(status == Some(1) && text.starts_with("::error::"), "{status:?}: {text}");
    ensure!(text.contains("root, or sudo without a password"), "{text}");
    let bin = folder.path().join("bin");
    for name in ["bash", "dirname", "mkdir"] {
        std::os::unix::fs::symlink(Path::new("/usr/bin").join(name), bin.join(name))?;
    }
    let no_containers = bin.to_string_lossy();
    let inputs = [("CONTAINER", "image"), ("PATH", &*no_containers)];
    let (status, text) = action(folder.path(), "lab", &[], &inputs)?;
    ensure!(status == Some(1) && text.contains("podman or docker"), "{status:?}: {text}");
    Ok(())
}

#[test]
fn the_action_keeps_the_cache_with_its_owners() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (work, output) = (folder.path(), folder.path().join("output"));
    let cache = work.join(".cache/vrnic");
    fs::create_dir_all(&cache)?;
    fs::write(cache.join("file"), "kept")?;
    let forge = [("GITHUB_OUTPUT", output.to_str().unwrap_or_default())];
    let (status, text) = action(work, "pack", &[], &forge)?;
    ensure!(status == Some(0), "{text}");
    fs::remove_dir_all(&cache)?;
    let (status, text) = action(work, "unpack", &[], &forge)?;
    ensure!(status == Some(0) && fs::read(cache.join("file"))? == b"kept", "{text}");
    action(work, "key", &[], &forge)?;
    let key = fs::read_to_string(output)?;
    ensure!(key.starts_with("key=vrnic-") && key.lines().count() == 1, "{key}");
    Ok(())
}

#[test]
fn the_action_passes_rules_for_faults_and_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let work = folder.path().canonicalize()?;
    for name in ["bzImage", "my scenario.toml", "a.ko", "b c.ko"] {
        fs::write(work.join(name), "")?;
    }
    let programs = [("podman", "printf '<%s>\\n' \"$@\""), ("docker", "exit 1")];
    let inputs = [
        ("CONTAINER", "image"),
        ("FAULTS", "drop function=a nth=3\n\ndrop-message every=2 seed=*\n"),
        ("MUST_HIT", "true"),
        ("KERNEL", "bzImage"),
        ("MODULE_FILES", "a.ko\nb c.ko"),
    ];
    let (status, text) = action(&work, "lab", &programs, &inputs)?;
    ensure!(status == Some(0), "{status:?}: {text}");
    let top = work.display();
    for part in [
        "<--fault>\n<drop function=a nth=3>\n<--fault>\n<drop-message every=2 seed=*>\n",
        "<--must-hit>\n",
        &format!("<--kernel>\n<{top}/bzImage>\n"),
        &format!("<--module-file>\n<{top}/a.ko>\n<--module-file>\n<{top}/b c.ko>\n"),
        &format!("<--volume>\n<{top}/bzImage:{top}/bzImage:ro>\n"),
        &format!("<--volume>\n<{top}/b c.ko:{top}/b c.ko:ro>\n"),
    ] {
        ensure!(text.contains(part), "no {part}:\n{text}");
    }
    let inputs = [("CONTAINER", "image"), ("SCENARIO", "my scenario.toml")];
    let (_, text) = action(&work, "lab", &programs, &inputs)?;
    let path = format!("{top}/my scenario.toml");
    ensure!(text.contains(&format!("<--scenario>\n<{path}>\n")), "{text}");
    ensure!(text.contains(&format!("<--volume>\n<{path}:{path}:ro>\n")), "{text}");
    Ok(())
}

#[test]
fn the_action_refuses_what_a_container_cannot_have() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let programs = [("podman", "echo started"), ("docker", "exit 1")];
    for (input, value, why) in [
        ("COPY", "none", "'copy' is"),
        ("SCENARIO", "none", "'scenario' is"),
        ("KERNEL", "none", "'kernel' is"),
        ("MODULE_FILES", "none", "'module-files' has"),
        ("UPLINKS", "tap=vr0", "'uplinks'"),
    ] {
        let inputs = [("CONTAINER", "image"), (input, value)];
        let (status, text) = action(folder.path(), "lab", &programs, &inputs)?;
        ensure!(status == Some(1) && text.contains(why), "{input}: {status:?}: {text}");
        ensure!(text.lines().count() == 1 && text.starts_with("::error::"), "{input}: {text}");
    }
    // Without a container, the lab has the machine's network.
    let lab = [("id", "echo 0"), ("dirname", "echo $PWD/ci")];
    fs::create_dir(folder.path().join("ci"))?;
    fs::create_dir(folder.path().join("scripts"))?;
    let script = folder.path().join("scripts/lab");
    fs::write(&script, "#!/bin/bash\nprintf '<%s>\\n' \"$@\"\n")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let inputs = [("UPLINKS", "tap=vr0\npacket=eth1")];
    let (status, text) = action(folder.path(), "lab", &lab, &inputs)?;
    let part = "<--uplink>\n<tap=vr0>\n<--uplink>\n<packet=eth1>\n";
    ensure!(status == Some(0) && text.contains(part), "{status:?}: {text}");
    // An unpacked image needs no root.
    let user = [("id", "echo 1000"), ("sudo", "exit 1"), lab[1]];
    let inputs = [("PREBUILT", "image.tar")];
    let (status, text) = action(folder.path(), "lab", &user, &inputs)?;
    ensure!(status == Some(0) && text.starts_with("<--prebuilt>\n<image.tar>\n"), "{text}");
    let inputs = [("PREBUILT", "image.tar"), ("CONTAINER", "image")];
    let (status, text) = action(folder.path(), "lab", &user, &inputs)?;
    ensure!(status == Some(1) && text.contains("exclude each other"), "{text}");
    Ok(())
}
