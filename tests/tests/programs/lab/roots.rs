//! Commands in the root of a container.
//!
//! Shows: tools

use std::fs;

use anyhow::{Result, ensure};
use vrnic_tests::repository::script::{archive, base_root, said, static_program, with_figures};

use super::lab;

/// The configuration of the image.
const CONFIG: &str = r#"{"architecture": "amd64", "os": "linux", "config": {
    "Env": ["PATH=/usr/bin:/bin", "GREETING=two words"], "User": "app", "WorkingDir": "/srv"}}"#;

/// perftest of an image of `docker save`, with the environment, the user and the working folder of
/// that image, between two guests. The image is made of the guests' own files: its first layer has
/// all of them, and its second one, which is compressed, changes some.
///
/// Shows: tools: containers' images as the root of guests
pub(crate) fn image() -> Result<()> {
    // Not in /tmp, which may be in memory.
    let folder = tempfile::TempDir::new_in("/var/tmp")?;
    let at = |name: &str| folder.path().join(name);
    base_root(&at("base"))?;
    fs::create_dir(at("image"))?;
    archive(&at("base"), &at("image/lower.tar"), &[])?;
    fs::create_dir_all(at("upper/etc"))?;
    fs::create_dir_all(at("upper/srv"))?;
    let users = fs::read_to_string(at("base/etc/passwd"))?;
    fs::write(at("upper/etc/passwd"), users + "app:x:1234:1235::/srv:/bin/sh\n")?;
    fs::write(at("upper/etc/.wh.debian_version"), "")?;
    fs::write(at("upper/etc/hosts"), "127.0.0.1 localhost\n10.1.1.1 mine a")?;
    fs::write(at("upper/srv/file"), "text\n")?;
    fs::write(at("upper/srv/libibverbs-1de1263b.so.1.14.48.0"), "")?;
    archive(&at("upper"), &at("image/upper.tar.gz"), &["--gzip"])?;
    fs::write(at("image/config.json"), CONFIG)?;
    let manifest =
        r#"[{"Config": "config.json", "RepoTags": [], "Layers": ["lower.tar", "upper.tar.gz"]}]"#;
    fs::write(at("image/manifest.json"), manifest)?;
    archive(&at("image"), &at("image.tar"), &[])?;
    let (image, kept) = (at("image.tar"), at("kept"));
    let (image, kept) = (image.to_string_lossy(), kept.to_string_lossy());
    let command = "set -e; id -u; id -g; pwd; echo $GREETING; echo $HOME; cat file; \
                   test ! -e /etc/debian_version; test ! -e /vrnic; echo kept >$VRNIC_OUTPUT/file; \
                   getent hosts mine a b | grep -o '^[^ ]*'; \
                   ib_write_bw -n 100 b";
    let options = ["--memory", "768M", "--root", &image, "--output", &kept];
    let options = [&options[..], &["--peer", "ib_write_bw -n 100", "--", command]].concat();
    let ran = with_figures(|| lab(&options))?;
    let text = said(&ran);
    ensure!(ran.status.success() && text.contains("BW average"), "{text}");
    let lines: Vec<_> = String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect();
    let image = ["1234", "1235", "/srv", "two words", "/srv", "text"];
    let hosts = ["10.1.1.1", "10.1.1.1", "10.9.0.2"];
    let expected = image.into_iter().chain(hosts);
    ensure!(lines.iter().map(String::as_str).take(9).eq(expected), "not what it says: {text}");
    ensure!(fs::read(at("kept/a/file"))? == b"kept\n", "no file: {text}");
    ensure!(
        text.contains("1.14.48.0 is a libibverbs of a program's own, of rdma-core 48, which loads"),
        "nothing is said: {text}"
    );
    Ok(())
}

/// A program that is linked statically, in a folder with nothing else, gets its arguments.
pub(crate) fn folder() -> Result<()> {
    let folder = tempfile::TempDir::new_in("/var/tmp")?;
    let root = folder.path().join("root");
    fs::create_dir(&root)?;
    let text = "fn main() { let words: Vec<_> = std::env::args().skip(1).collect(); \
                println!(\"{words:?} {:?}\", std::env::var(\"VRNIC_DEVICE\")); \
                std::fs::write(\"/new\", \"\").expect(\"the root is writable\"); \
                assert!(std::path::Path::new(\"/dev/infiniband/uverbs0\").exists()); \
                std::process::exit(7); }";
    static_program(&root.join("program"), text)?;
    let path = root.to_string_lossy();
    let options = ["--guests", "1", "--memory", "512M", "--root", &path];
    let ran = lab(&[&options[..], &["--", "/program", "a b", "$HOME"]].concat())?;
    let text = said(&ran);
    ensure!(ran.status.code() == Some(7), "{text}");
    ensure!(text.contains(r#"["a b", "$HOME"] Ok(""#), "not its arguments: {text}");
    ensure!(text.contains("the root has no libibverbs"), "nothing is said: {text}");
    ensure!(!root.join("new").exists(), "the folder was changed");
    Ok(())
}
