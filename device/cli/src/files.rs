//! The files that a capture is written to: one file, or a ring of several.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// One or more files, of which one is being written.
pub(crate) struct Files {
    path: PathBuf,
    ring: Option<Ring>,
    out: BufWriter<Box<dyn Write>>,
    /// The blocks with which each file begins.
    head: Vec<u8>,
    /// Bytes in the current file.
    bytes: u64,
}

/// A ring of files, in which the oldest is overwritten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// Number of files.
    pub(crate) files: u32,
    /// The maximum number of bytes of each file.
    pub(crate) size: u64,
    /// The index of the current file.
    pub(crate) at: u32,
}

impl Files {
    /// Creates the first file. The path `-` stands for standard output.
    pub(crate) fn create(path: &Path, ring: Option<Ring>) -> anyhow::Result<Self> {
        let out = open(path, ring)?;
        Ok(Self { path: path.to_owned(), ring, out, head: Vec::new(), bytes: 0 })
    }

    /// Writes a block that each file of a ring begins with.
    pub(crate) fn head(&mut self, block: &[u8]) -> io::Result<()> {
        self.head.extend_from_slice(block);
        self.put(block)
    }

    /// Writes a packet. Begins the next file of the ring if the current one would become too large.
    pub(crate) fn packet(&mut self, block: &[u8]) -> anyhow::Result<()> {
        if let Some(ring) = &mut self.ring
            && self.bytes + block.len() as u64 > ring.size
            && self.bytes > self.head.len() as u64
        {
            ring.at = (ring.at + 1) % ring.files;
            self.out.flush()?;
            self.out = open(&self.path, self.ring)?;
            self.bytes = 0;
            let head = std::mem::take(&mut self.head);
            self.head(&head)?;
        }
        Ok(self.put(block)?)
    }

    fn put(&mut self, block: &[u8]) -> io::Result<()> {
        self.bytes += block.len() as u64;
        self.out.write_all(block)
    }

    /// Writes buffered data, so that readers of the file can see it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Opens a file. In a ring, `out.pcapng` stands for `out.0.pcapng`, `out.1.pcapng` and so on.
fn open(path: &Path, ring: Option<Ring>) -> anyhow::Result<BufWriter<Box<dyn Write>>> {
    if path.as_os_str() == "-" {
        return Ok(BufWriter::new(Box::new(io::stdout())));
    }
    let mut path = path.to_owned();
    if let Some(Ring { at, .. }) = ring {
        let end = path.extension().unwrap_or("pcapng".as_ref()).to_owned();
        path.set_extension(at.to_string());
        path.as_mut_os_string().push(".");
        path.as_mut_os_string().push(end);
    }
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(Box::new(file)))
}
