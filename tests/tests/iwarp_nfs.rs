//! NFS over RDMA between adapters of iWARP, and between an adapter and siw, in guests that have its
//! programs. `scripts/test apps` runs this.

use std::process::ExitCode;

use anyhow::Result;
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::pair::Options;
use vrnic_tests::harness::{self, Case};
use vrnic_tests::nfs::{serve_and_use, use_mounted};
use vrnic_tests::siw;

fn main() -> ExitCode {
    match files() {
        Ok(files) => run(files),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns siw.ko, if it was built.
fn files() -> Result<Vec<(String, Vec<u8>)>> {
    Ok(siw::file()?.into_iter().collect())
}

fn run(files: Vec<(String, Vec<u8>)>) -> ExitCode {
    let mut cases = vec![
        Case::new("nfs", |pair| serve_and_use(&pair.a, &pair.b)),
        Case::new("nfs_other_way", |pair| serve_and_use(&pair.b, &pair.a)),
    ];
    if !files.is_empty() {
        cases.push(Case::new("nfs_from_siw", |pair| {
            siw::create(&pair.b)?;
            use_mounted(&pair.b, &pair.a)
        }));
        cases.push(Case::new("nfs_to_siw", |pair| {
            siw::create(&pair.b)?;
            serve_and_use(&pair.a, &pair.b)
        }));
    }
    let options =
        Options { personality: Transport::Iwarp, memory: 2560, files, ..Options::default() };
    harness::main(options, cases)
}
