//! Archives of images: those of `docker save` and `podman save`, of OCI, and archives that are the
//! files of a root themselves. The archive and its layers may be compressed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::statvfs::statvfs;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::container::config::{Config, PROCESSOR};
use crate::container::layer;
use crate::machine::process::Killed;

/// Maximum length of a JSON file of an archive.
const JSON_MAX: u64 = 16 << 20;
/// Maximum number of layers of an image.
const LAYERS_MAX: usize = 1000;
/// The note of manifests that are about an image, and no image.
const ATTESTATION: &str = "vnd.docker.reference.type";
/// The guests' system, as images call it.
const SYSTEM: &str = "linux";
/// How much larger files are than their compressed form, at most in practice.
const EXPANSION: u64 = 4;

/// Programs that decompress, and the bytes with which what they decompress begins.
const COMPRESSED: [(&[u8], &str); 3] =
    [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz")];

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: u64,
    len: u64,
}

/// An archive, which is not compressed.
#[derive(Debug)]
struct Archive {
    file: PathBuf,
    parts: HashMap<PathBuf, Part>,
    links: HashMap<PathBuf, PathBuf>,
}

/// An image in an archive.
#[derive(Debug)]
struct Image {
    config: PathBuf,
    layers: Vec<PathBuf>,
}

/// The file manifest.json of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    layers: Vec<PathBuf>,
}

/// The file index.json of OCI, or an index that it names.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl Descriptor {
    /// Returns whether it may name an image for the guests. Other manifests are for other
    /// processors, or say how an image was built.
    fn fits(&self) -> bool {
        let kind = self.annotations.as_ref().and_then(|notes| notes.get(ATTESTATION));
        let platform = self.platform.as_ref();
        kind.is_none() && platform.is_none_or(|it| it.os == SYSTEM && it.architecture == PROCESSOR)
    }
}

/// Unpacks an archive into the folder `root`, which it makes. Returns what the image says about its
/// programs.
///
/// # Errors
/// If the archive is damaged, contains more than one image, or is too large for the disk.
pub fn unpack(path: &Path, root: &Path) -> Result<Config> {
    fs::create_dir_all(root)?;
    // Without compression, parts of the file can be read where they are.
    let expanded = root.with_extension("tar");
    let mut head = File::open(path)?;
    let file = match compression(&mut head)? {
        None => path.to_owned(),
        Some(_) => {
            room(root, fs::metadata(path)?.len().saturating_mul(EXPANSION))?;
            let mut plain = decompressed(File::open(path)?)?;
            io::copy(&mut plain, &mut File::create(&expanded)?)?;
            expanded.clone()
        }
    };
    let archive = Archive::open(&file)?;
    let config = match archive.image()? {
        Some(image) => archive.apply(&image, root)?,
        None => {
            room(root, fs::metadata(&file)?.len())?;
            layer::unpack(File::open(&file)?, root)?;
            Config::default()
        }
    };
    if file == expanded {
        fs::remove_file(&expanded)?;
    }
    Ok(config)
}

/// Checks that the disk of a folder has room for so many bytes.
fn room(folder: &Path, bytes: u64) -> Result<()> {
    let disk = statvfs(folder).context("cannot find out how much room the disk has")?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    ensure!(
        bytes <= free,
        "unpacking it needs about {} MB on the disk of {}, which has {} MB left",
        bytes / 1_000_000,
        folder.display(),
        free / 1_000_000
    );
    Ok(())
}

impl Archive {
    /// Reads the table of an archive.
    fn open(file: &Path) -> Result<Self> {
        let (mut parts, mut links) = (HashMap::new(), HashMap::new());
        let mut archive = tar::Archive::new(File::open(file)?);
        for entry in archive.entries_with_seek().context("it is no tar archive")? {
            let entry = entry.context("it is no tar archive, or a damaged one")?;
            let name: PathBuf =
                entry.path()?.components().skip_while(|it| it.as_os_str() == ".").collect();
            // Only those can be parts of an image; a root has many more.
            if entry.header().entry_type().is_file() {
                parts.insert(name, Part { at: entry.raw_file_position(), len: entry.size() });
            } else if let Some(target) = entry.link_name()? {
                let folder = name.parent().unwrap_or(Path::new(""));
                let target = folder.join(target);
                links.insert(name, target);
            }
        }
        ensure!(!parts.is_empty(), "it is no tar archive, or an empty one");
        Ok(Self { file: file.to_owned(), parts, links })
    }

    /// Returns the image, or nothing if these are the files of a root.
    fn image(&self) -> Result<Option<Image>> {
        let has = |name: &str| self.parts.contains_key(Path::new(name));
        if has("manifest.json") {
            let saved: Vec<Saved> = self.json(Path::new("manifest.json"))?;
            let images = saved.len();
            let Ok([Saved { config, layers }]) = <[Saved; 1]>::try_from(saved) else {
                bail!("it contains {images} images; save a single one")
            };
            return Ok(Some(Image { config, layers }));
        }
        if !has("index.json") || !has("oci-layout") {
            return Ok(None);
        }
        let mut at = PathBuf::from("index.json");
        // An index may name another one for several processors.
        for _ in 0..3 {
            let value: serde_json::Value = self.json(&at)?;
            if value.get("layers").is_some() {
                let Manifest { config, layers } = serde_json::from_value(value)?;
                let layers = layers.iter().map(blob).collect::<Result<_>>()?;
                return Ok(Some(Image { config: blob(&config)?, layers }));
            }
            let index: Index =
                serde_json::from_value(value).context("the index has no known form")?;
            let images: Vec<_> = index.manifests.iter().filter(|it| it.fits()).collect();
            let [only] = images.as_slice() else {
                let images = images.len();
                bail!("it contains {images} images for {PROCESSOR}; save a single one")
            };
            at = blob(only)?;
        }
        bail!("its index leads to no image")
    }

    /// Unpacks the layers of an image, from the lowest one.
    fn apply(&self, image: &Image, root: &Path) -> Result<Config> {
        let config = Config::parse(&self.bytes(&image.config)?)?;
        config.fits(&self.file)?;
        let count = image.layers.len();
        ensure!(count <= LAYERS_MAX, "the image has {count} layers; {LAYERS_MAX} are possible");
        let mut needed = 0_u64;
        for layer in &image.layers {
            let factor =
                if compression(&mut self.open_part(layer)?)?.is_some() { EXPANSION } else { 1 };
            needed = needed.saturating_add(self.part(layer)?.len.saturating_mul(factor));
        }
        room(root, needed)?;
        for layer in &image.layers {
            let failure = || format!("the layer {}", layer.display());
            layer::remove(decompressed(self.open_part(layer)?)?, root).with_context(failure)?;
            layer::unpack(decompressed(self.open_part(layer)?)?, root).with_context(failure)?;
        }
        Ok(config)
    }

    fn json<T: DeserializeOwned>(&self, name: &Path) -> Result<T> {
        let failure = || format!("{} has no known form", name.display());
        serde_json::from_slice(&self.bytes(name)?).with_context(failure)
    }

    fn bytes(&self, name: &Path) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let len = self.part(name)?.len;
        ensure!(len <= JSON_MAX, "{} has {len} bytes", name.display());
        self.open_part(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns a file of the archive. Older versions of docker link equal layers.
    fn part(&self, name: &Path) -> Result<Part> {
        let name = self.links.get(name).map_or(name, |target| target.as_path());
        let name = normal(name);
        let part = self.parts.get(&name).copied();
        part.with_context(|| format!("the archive lacks {}", name.display()))
    }

    fn open_part(&self, name: &Path) -> Result<io::Take<File>> {
        let Part { at, len } = self.part(name)?;
        let mut file = File::open(&self.file)?;
        file.seek(SeekFrom::Start(at))?;
        Ok(file.take(len))
    }
}

/// Returns a path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the path of a blob in an archive of OCI.
fn blob(descriptor: &Descriptor) -> Result<PathBuf> {
    let digest = &descriptor.digest;
    let (kind, sum) = digest.split_once(':').with_context(|| format!("'{digest}' is no digest"))?;
    Ok(Path::new("blobs").join(kind).join(sum))
}

/// Returns the program that decompresses what the reader gives, if it is compressed. Reads the
/// first bytes.
fn compression(reader: &mut impl Read) -> io::Result<Option<&'static str>> {
    let mut head = Vec::new();
    reader.take(8).read_to_end(&mut head)?;
    Ok(COMPRESSED.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, program)| *program))
}

/// Returns what the reader gives, decompressed.
fn decompressed(mut reader: impl Read + Send + 'static) -> Result<Box<dyn Read>> {
    let mut head = Vec::new();
    reader.by_ref().take(8).read_to_end(&mut head)?;
    let program = compression(&mut head.as_slice())?;
    let mut whole = io::Cursor::new(head).chain(reader);
    let Some(program) = program else { return Ok(Box::new(whole)) };
    let mut command = Command::new(program);
    command.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failure = || format!("it is compressed by {program}, and this machine cannot start that");
    let mut child = Killed::start(command).with_context(failure)?;
    let mut input = child.child().stdin.take().context("no standard input")?;
    let output = child.child().stdout.take().context("no standard output")?;
    thread::spawn(move || {
        // If the program ends early, its reader sees that.
        let _ended = io::copy(&mut whole, &mut input);
    });
    Ok(Box::new(Decompressing { output, child, program }))
}

/// The output of a program that decompresses.
struct Decompressing {
    output: std::process::ChildStdout,
    child: Killed,
    program: &'static str,
}

impl Read for Decompressing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.output.read(buffer)?;
        if len == 0 && !buffer.is_empty() && !self.child.child().wait()?.success() {
            let text = format!("{} says that it is damaged", self.program);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"architecture": "amd64", "config": {"Env": ["A=1"], "User": "5"}}"#;

    /// Returns an archive of these files.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, data) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            archive.append_data(&mut header, name, *data).expect("an entry");
        }
        archive.into_inner().expect("an archive")
    }

    /// Compresses with a program of this machine.
    fn gzip(data: &[u8]) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("file");
        fs::write(&file, data)?;
        Ok(Command::new("gzip").arg("-c").arg(file).output()?.stdout)
    }

    /// Unpacks an archive. Returns the configuration, and the files `one` and `two`.
    fn unpacked(data: &[u8]) -> Result<(Config, [Option<Vec<u8>>; 2])> {
        let folder = tempfile::tempdir()?;
        let (file, root) = (folder.path().join("file"), folder.path().join("root"));
        fs::write(&file, data)?;
        let config = unpack(&file, &root)?;
        let names: Vec<_> =
            fs::read_dir(folder.path())?.flatten().map(|it| it.file_name()).collect();
        assert_eq!(names.len(), 2, "more than the root was left: {names:?}");
        Ok((config, ["one", "two"].map(|name| fs::read(root.join(name)).ok())))
    }

    /// Layers in which the second one removes what the first one has, and is compressed.
    fn layers() -> Result<[Vec<u8>; 2]> {
        let lower = archive(&[("one", b"1"), ("two", b"2")]);
        Ok([lower, gzip(&archive(&[(".wh.one", b""), ("two", b"3")]))?])
    }

    #[test]
    fn an_image_of_docker_is_unpacked() -> Result<()> {
        let [lower, upper] = layers()?;
        let manifest = br#"[{"Config": "c.json", "Layers": ["x/layer.tar", "y/layer.tar"]}]"#;
        let files: [(&str, &[u8]); 4] = [
            ("x/layer.tar", &lower),
            ("y/layer.tar", &upper),
            ("c.json", CONFIG.as_bytes()),
            ("manifest.json", manifest),
        ];
        let whole = archive(&files);
        for data in [whole.clone(), gzip(&whole)?] {
            let (config, [one, two]) = unpacked(&data)?;
            assert_eq!((config.env, config.user), (vec!["A=1".to_owned()], "5".to_owned()));
            assert_eq!((one, two.as_deref()), (None, Some(&b"3"[..])));
        }
        Ok(())
    }

    #[test]
    fn an_image_of_oci_is_unpacked() -> Result<()> {
        let [lower, upper] = layers()?;
        let manifest = br#"{"config": {"digest": "sha256:c"},
            "layers": [{"digest": "sha256:l"}, {"digest": "sha256:u"}]}"#;
        let files: [(&str, &[u8]); 6] = [
            ("oci-layout", b"{}"),
            ("index.json", br#"{"manifests": [{"digest": "sha256:m"}]}"#),
            ("blobs/sha256/m", manifest),
            ("blobs/sha256/c", CONFIG.as_bytes()),
            ("blobs/sha256/l", &lower),
            ("blobs/sha256/u", &upper),
        ];
        let (config, [one, two]) = unpacked(&archive(&files))?;
        assert_eq!((config.user.as_str(), one, two.as_deref()), ("5", None, Some(&b"3"[..])));
        Ok(())
    }

    #[test]
    fn the_image_for_the_guests_is_chosen() -> Result<()> {
        let layer = archive(&[("one", b"1")]);
        let manifest = br#"{"config": {"digest": "sha256:c"}, "layers": [{"digest": "sha256:l"}]}"#;
        let platform = |digest: &str, architecture: &str| {
            format!(
                r#"{{"digest": "sha256:{digest}",
                     "platform": {{"os": "linux", "architecture": "{architecture}"}}}}"#
            )
        };
        let (ours, other) = (platform("m", "amd64"), platform("gone", "arm64"));
        let about = r#"{"digest": "sha256:gone", "annotations":
            {"vnd.docker.reference.type": "attestation-manifest"}}"#;
        let unpacked = |images: &[&str]| {
            let inner = format!(r#"{{"manifests": [{}]}}"#, images.join(","));
            let files: [(&str, &[u8]); 6] = [
                ("oci-layout", b"{}"),
                ("index.json", br#"{"manifests": [{"digest": "sha256:i", "annotations": {}}]}"#),
                ("blobs/sha256/i", inner.as_bytes()),
                ("blobs/sha256/m", manifest),
                ("blobs/sha256/c", CONFIG.as_bytes()),
                ("blobs/sha256/l", &layer),
            ];
            unpacked(&archive(&files))
        };
        let (_, [one, _]) = unpacked(&[&other, &ours, about])?;
        assert_eq!(one.as_deref(), Some(&b"1"[..]));
        for (images, why) in [(vec![&ours, &ours], "2 images for"), (vec![&other], "0 images for")]
        {
            let images: Vec<&str> = images.into_iter().map(String::as_str).collect();
            assert!(unpacked(&images).is_err_and(|error| format!("{error:#}").contains(why)));
        }
        Ok(())
    }

    #[test]
    fn files_of_a_root_are_unpacked() -> Result<()> {
        let (config, [one, _]) = unpacked(&gzip(&archive(&[("one", b"1")]))?)?;
        assert_eq!((config, one.as_deref()), (Config::default(), Some(&b"1"[..])));
        Ok(())
    }

    #[test]
    fn damaged_archives_and_several_images_are_refused() -> Result<()> {
        let complaint =
            |data: &[u8]| unpacked(data).map_or_else(|it| format!("{it:#}"), |_| String::new());
        assert!(complaint(b"no archive").contains("no tar archive"));
        assert!(complaint(&archive(&[])).contains("no tar archive"));
        let two = br#"[{"Config": "c", "Layers": []}, {"Config": "c", "Layers": []}]"#;
        assert!(complaint(&archive(&[("manifest.json", two)])).contains("2 images"));
        let lacks = br#"[{"Config": "c.json", "Layers": []}]"#;
        assert!(complaint(&archive(&[("manifest.json", lacks)])).contains("lacks c.json"));
        let mut cut = gzip(&archive(&[("one", &[7; 5000])]))?;
        cut.truncate(cut.len() / 2);
        assert!(!complaint(&cut).is_empty());
        Ok(())
    }
}
