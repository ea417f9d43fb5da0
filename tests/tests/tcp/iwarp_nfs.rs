//! NFS over RDMA between adapters of iWARP, and between an adapter and siw, in guests that have its
//! programs.
//!
//! Shows: iwarp

use anyhow::Result;
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::pair::Options;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::nfs::{serve_and_use, use_mounted};
use vrnic_tests::siw;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let files: Vec<_> = siw::file()?.into_iter().collect();
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
    Ok(Suite::new(options, cases))
}
