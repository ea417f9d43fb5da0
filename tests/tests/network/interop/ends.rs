//! The two ends: guest a with its adapter, guest b with rxe.

use std::fmt;

use anyhow::Result;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{SHORT_TIMEOUT, settles};

/// Direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The server has rxe.
    ToRxe,
    /// The client has rxe.
    FromRxe,
}

impl Way {
    /// Both directions, in which each case runs.
    pub(crate) const BOTH: [Self; 2] = [Self::ToRxe, Self::FromRxe];

    /// Gives guest b its software device. Returns the server and the client.
    pub(crate) fn ends(self, pair: &Pair) -> Result<(&Guest, &Guest)> {
        software_device(pair)?;
        Ok(match self {
            Self::ToRxe => (&pair.b, &pair.a),
            Self::FromRxe => (&pair.a, &pair.b),
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ToRxe => "to rxe",
            Self::FromRxe => "from rxe",
        })
    }
}

/// Replaces the adapter of guest b by a software device, unless that was done before.
fn software_device(pair: &Pair) -> Result<()> {
    let make = "[ -d /sys/class/infiniband/rxe0 ] && echo there && exit; \
                rmmod vrnic && modprobe -a rdma_ucm rdma_rxe && \
                rdma link add rxe0 type rxe netdev eth0";
    if pair.b.check(make, SHORT_TIMEOUT)?.contains("there") {
        return Ok(());
    }
    let port = "/sys/class/infiniband/rxe0/ports/1";
    settles(&pair.b, &format!("grep -qs ACTIVE {port}/state"), 30)?;
    settles(&pair.b, &format!("grep -qs 0000:0000:0000:0000:0000:ffff {port}/gids/*"), 30)?;
    pair.a.check("modprobe rdma_ucm; ping -c 2 -W 5 10.9.0.2", SHORT_TIMEOUT)?;
    Ok(())
}
