//! Clients that open TCP connections to an iWARP listener and send nothing.

use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

/// The listener, and the number of connections.
#[derive(Debug, Args)]
pub(crate) struct Idle {
    /// Address of the server.
    address: Ipv4Addr,
    /// Port of the server.
    #[arg(long, default_value_t = 7174)]
    port: u16,
    /// Number of connections.
    #[arg(long, default_value_t = 64)]
    count: usize,
}

/// Opens connections, prints a line, and keeps them open until killed.
pub(crate) fn run(options: &Idle) -> Result<()> {
    let open = |nth| {
        let stream = TcpStream::connect((options.address, options.port));
        stream.with_context(|| format!("connection {nth}"))
    };
    let _held = (0..options.count).map(open).collect::<Result<Vec<_>>>()?;
    println!("open");
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}
