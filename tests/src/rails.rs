//! One of several devices of a guest.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Adapter;
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

use crate::commands::{Ends, LONG_TIMEOUT, SHORT_TIMEOUT, settles, stop_all};

/// A device of a guest: the first is `vrnic0`, with `eth0`.
#[derive(Clone, Copy, Debug)]
pub struct Rail<'a> {
    /// The guest that has the adapter.
    pub guest: &'a Guest,
    /// The number of the rail in the guest, from 0.
    pub number: u8,
}

impl<'a> Rail<'a> {
    /// Returns a device of guest a.
    #[must_use]
    pub fn a(pair: &'a Pair, number: u8) -> Self {
        Self { guest: &pair.a, number }
    }

    /// Returns a device of guest b.
    #[must_use]
    pub fn b(pair: &'a Pair, number: u8) -> Self {
        Self { guest: &pair.b, number }
    }

    /// Returns the adapter of the rail.
    pub fn adapter(&self) -> Result<&'a Adapter> {
        let adapters = &mut self.guest.setup().adapters();
        adapters.nth(self.number.into()).with_context(|| format!("no adapter {}", self.number))
    }

    /// Returns the name of the RDMA device.
    #[must_use]
    pub fn device(&self) -> String {
        format!("vrnic{}", self.number)
    }

    /// Returns the contents of its file in sysfs.
    pub fn read(&self, file: &str) -> Result<String> {
        let text = self
            .guest
            .check(&format!("cat /sys/class/infiniband/{}/{file}", self.device()), SHORT_TIMEOUT);
        Ok(text?.trim().to_owned())
    }

    /// Returns its PCI address.
    pub fn pci(&self) -> Result<String> {
        let script = format!("basename $(realpath /sys/class/infiniband/{}/device)", self.device());
        Ok(self.guest.check(&script, SHORT_TIMEOUT)?.trim().to_owned())
    }

    /// Waits for half a minute until its port is in a state.
    pub fn link_is(&self, state: &str) -> Result<()> {
        let device = self.device();
        settles(self.guest, &format!("rdma link show {device}/1 | grep -q 'state {state}'"), 30)
    }

    /// Waits until its port is active and has the GID of its IPv4 address.
    pub fn is_ready(&self) -> Result<()> {
        self.link_is("ACTIVE")?;
        let gids = format!("/sys/class/infiniband/{}/ports/1/gids", self.device());
        settles(self.guest, &format!("grep -qs 0000:0000:0000:0000:0000:ffff {gids}/*"), 30)
    }

    /// Returns its counters of transferred packets, bytes and completions.
    pub fn traffic(&self) -> Result<BTreeMap<String, u64>> {
        // The kernel queries the driver again after 10 ms.
        let folder = format!("/sys/class/infiniband/{}/ports/1/hw_counters", self.device());
        let script = format!("sleep 0.02; cd {folder} && grep . [tr]x_* cqes completion_events");
        let text = self.guest.check(&script, SHORT_TIMEOUT)?;
        let counters = text.lines().map(|line| {
            let (name, value) = line.split_once(':').with_context(|| line.to_owned())?;
            Ok((name.to_owned(), value.parse()?))
        });
        counters.collect()
    }

    /// Returns how many bytes `self` received and sent while `run` ran.
    pub fn moved(&self, run: impl FnOnce() -> Result<()>) -> Result<u64> {
        let sum = |counters: BTreeMap<String, u64>| counters["rx_bytes"] + counters["tx_bytes"];
        let before = sum(self.traffic()?);
        run()?;
        Ok(sum(self.traffic()?) - before)
    }

    /// Checks that more than 1 MiB is received and sent in a second.
    pub fn is_busy(&self) -> Result<()> {
        let bytes = self.moved(|| {
            sleep(Duration::from_secs(1));
            Ok(())
        })?;
        ensure!(bytes > 1 << 20, "{} moves {bytes} bytes in a second", self.device());
        Ok(())
    }
}

/// A server and its client, which are running.
pub struct Session {
    what: String,
    server: Running,
    client: Running,
}

impl Session {
    /// Starts `command` (of rdma-core's examples or perftest) on the devices of `server` and
    /// `client`, which may be the same device, with its control connection on `port` of the same
    /// rail.
    pub fn start(server: Rail<'_>, client: Rail<'_>, command: &str, port: u16) -> Result<Self> {
        let on = |rail: Rail<'_>| format!("exec {command} -d {} -p {port}", rail.device());
        let serving = server.guest.agent().start(&on(server))?;
        server.guest.listens_on(port)?;
        let asks = format!("{} {}", on(client), server.adapter()?.ip());
        let what = format!("{command}, {} to {}", client.device(), server.device());
        Ok(Self { what, server: serving, client: client.guest.agent().start(&asks)? })
    }

    /// Starts a session that moves data for `seconds`, and waits until it does.
    pub fn transfer(
        server: Rail<'_>,
        client: Rail<'_>,
        tool: &str,
        (seconds, port): (u32, u16),
    ) -> Result<Self> {
        let command = format!("{tool} -F -D {seconds} -s 65536");
        let this = Self::start(server, client, &command, port)?;
        let device = client.device();
        settles(
            client.guest,
            &format!("rdma res show qp link {device}/1 | grep -q 'RC state RTS'"),
            30,
        )?;
        sleep(Duration::from_secs(1));
        Ok(this)
    }

    /// Waits for the end. Both must succeed, and report no wrong data. Returns the client's output.
    pub fn end(self) -> Result<String> {
        let ends = Ends::of(self.server, self.client.wait(LONG_TIMEOUT)?)?;
        let text = ends.said();
        ensure!(!text.contains("invalid data"), "'{}' found wrong data\n{text}", self.what);
        ends.succeed(&self.what)
    }

    /// Kills the client and the server.
    pub fn kill(self) -> Result<()> {
        stop_all([self.client, self.server])?;
        Ok(())
    }
}
