//! RDMA between vrnic and the kernel's software device (rxe): guest a keeps its adapter, and guest
//! b unloads the driver of its adapter and creates a software device on its network card.
//!
//! Shows: roce
//!
//! | module | what |
//! | --- | --- |
//! | [`ends`] | the two ends, and which of them is the server |
//! | [`network`] | the network between them: its MTU, its addresses, and losses |
//! | [`figures`] | perftest |
//! | [`managed`] | programs that connect by the connection manager |
//! | [`content`] | the conformance program |
//! | [`storage`] | NVMe over Fabrics |

mod content;
mod ends;
mod figures;
mod managed;
mod network;
mod storage;

use anyhow::Result;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::harness::{Case, Suite};

use ends::Way;

/// Makes a case for each direction. `run` gets the direction.
fn both_ways(
    name: &str,
    run: impl Fn(&Pair, Way) -> Result<()> + Send + Sync + Clone + 'static,
) -> impl Iterator<Item = Case> {
    Way::BOTH.into_iter().map(move |way| {
        let run = run.clone();
        Case::new(format!("{name} {way}"), move |pair: &mut Pair| run(pair, way))
    })
}

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = [figures::cases(), managed::cases(), content::cases(), storage::cases()];
    let cases = cases.into_iter().flatten().collect();
    Ok(Suite::with_modules(&network::MODULES, Options::default(), cases)?.changing_guests())
}
