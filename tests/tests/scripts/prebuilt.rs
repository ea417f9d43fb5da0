//! The option `--prebuilt`, with small images whose scripts say what they were given.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vrnic_tests::repository::script::{run, said, succeed, top};

use super::plain;

/// An image in a folder, with a cache next to it.
struct Image {
    folder: TempDir,
}

impl Image {
    /// Makes an image whose script `run` prints its arguments and the variable of its root.
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let scripts = folder.path().join("root/opt/vrnic/scripts");
        fs::create_dir_all(&scripts)?;
        fs::write(scripts.join("../prebuilt"), "")?;
        let script = scripts.join("run");
        fs::write(&script, "#!/bin/sh\nprintf '%s\\n' \"$VRNIC_IMAGE_ROOT\" \"$@\"\n")?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let image = Self { folder };
        image.pack("root")?;
        Ok(image)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the archive of a folder, and its checksum.
    fn pack(&self, root: &str) -> Result<()> {
        let script = "tar -C $0 -cf image.tar . && sha256sum image.tar >image.tar.sha256";
        succeed(plain("bash").args(["-euc", script, root]).current_dir(self.folder.path()))
            .map(drop)
    }

    /// Runs `scripts/run` with this image.
    fn run(&self, image: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = plain(top()?.join("scripts/run"));
        command.args(["--only", "ib_write_bw", "--prebuilt", image]).args(arguments);
        run(command.env("VRNIC_CACHE", self.path("cache")))
    }

    /// Returns the path of the image's archive.
    fn archive(&self) -> String {
        self.path("image.tar").to_string_lossy().into_owned()
    }

    /// Returns how many images are unpacked, and files are left.
    fn kept(&self) -> Result<usize> {
        let names = fs::read_dir(self.path("cache"))?
            .map(|entry| Ok(entry?.file_name().into_encoded_bytes()))
            .collect::<Result<Vec<_>>>()?;
        Ok(names.iter().filter(|name| *name != b"prebuilt.lock").count())
    }

    /// Checks that the image is refused with a sentence that has this part, and nothing is kept.
    fn refuses(&self, image: &str, part: &str) -> Result<()> {
        let ran = self.run(image, &[])?;
        let text = said(&ran);
        ensure!(ran.status.code() == Some(1) && text.contains(part), "{text}");
        ensure!(ran.stdout.is_empty() && self.kept()? == 0, "{text}");
        Ok(())
    }
}

/// Checks that the script of the image ran with these arguments.
fn ran_with(ran: &Output, arguments: &[&str]) -> Result<()> {
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut lines = text.lines();
    let root = lines.next().context("the script of the image did not run")?;
    ensure!(ran.status.success() && Path::new(root).join("opt/vrnic/scripts/run").exists());
    ensure!(lines.eq(arguments.iter().copied()), "{}", said(ran));
    Ok(())
}

#[test]
fn the_script_of_the_image_runs_with_the_other_options() -> Result<()> {
    let image = Image::new()?;
    let archive = image.archive();
    for unpacks in [true, false] {
        let ran = image.run(&archive, &["--verbose"])?;
        ran_with(&ran, &["--only", "ib_write_bw", "--verbose"])?;
        ensure!(said(&ran).contains("unpacking") == unpacks, "{}", said(&ran));
    }
    // Another image at the same path.
    fs::write(image.path("root/opt/vrnic/more"), "more")?;
    image.pack("root")?;
    ensure!(said(&image.run(&archive, &[])?).contains("unpacking"));
    ensure!(image.kept()? == 2);
    Ok(())
}

#[test]
fn what_is_no_whole_image_is_refused() -> Result<()> {
    let image = Image::new()?;
    let archive = image.archive();
    image.refuses("nowhere.tar", "is not a file; scripts/image makes one")?;
    let sums = image.path("image.tar.sha256");
    let sum = fs::read_to_string(&sums)?;
    fs::write(&sums, format!("{}  image.tar\n", "0".repeat(64)))?;
    image.refuses(&archive, "is not what its checksum")?;
    fs::write(&sums, sum)?;
    image.pack("root/opt")?;
    let ran = image.run(&archive, &[])?;
    ensure!(said(&ran).contains("is not an image of scripts/image"), "{}", said(&ran));
    Ok(())
}

/// Answers requests for files of a folder. Returns its address.
fn serve(folder: &Path) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    let folder = folder.to_owned();
    thread::spawn(move || -> Result<()> {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream?);
            let mut request = String::new();
            stream.read_line(&mut request)?;
            let mut header = String::from("-");
            while !header.trim().is_empty() {
                header.clear();
                stream.read_line(&mut header)?;
            }
            let path = request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let (status, body) = match fs::read(folder.join(path)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let length = body.len();
            let stream = stream.get_mut();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            )?;
            stream.write_all(&body)?;
        }
        Ok(())
    });
    Ok(address)
}

#[test]
fn an_image_at_an_address_is_fetched_once_and_checked() -> Result<()> {
    let fetches = |program| Command::new(program).arg("--version").output().is_ok();
    if !fetches("curl") && !fetches("wget") {
        eprintln!("skipped: there is neither curl nor wget");
        return Ok(());
    }
    let image = Image::new()?;
    let address = format!("{}/image.tar", serve(image.folder.path())?);
    for fetches in [true, false] {
        let ran = image.run(&address, &[])?;
        ran_with(&ran, &["--only", "ib_write_bw"])?;
        ensure!(said(&ran).contains("fetching") == fetches, "{}", said(&ran));
    }
    ensure!(image.kept()? == 1, "more than the unpacked image is kept");
    fs::remove_dir_all(image.path("cache"))?;
    fs::write(image.path("image.tar.sha256"), "0".repeat(64))?;
    image.refuses(&address, "is not what its checksum")?;
    fs::write(image.path("image.tar.sha256"), "no sum")?;
    image.refuses(&address, "has no SHA-256 sum")?;
    fs::remove_file(image.path("image.tar.sha256"))?;
    image.refuses(&address, "cannot fetch")
}
