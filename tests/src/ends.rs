//! Results of a client and its server.

use anyhow::{Result, ensure};
use vrnic_qemu::agent::{Output, Running};

use crate::talk::{SHORT, said};

/// Both ends of something that has ended.
#[derive(Debug)]
pub struct Ends {
    client: Output,
    server: Output,
}

impl Ends {
    /// Waits for the server of a client that has ended; it is killed if the client failed.
    ///
    /// # Errors
    /// When it does not end.
    pub fn of(server: Running, client: Output) -> Result<Self> {
        if !client.ok() {
            server.kill()?;
        }
        Ok(Self { client, server: server.wait(SHORT)? })
    }

    /// Returns whether both succeeded.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.client.ok() && self.server.ok()
    }

    /// Everything that both said, the client first.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}\n{}", said(&self.client), said(&self.server))
    }

    /// Checks that both succeeded. Gives what the client said.
    ///
    /// # Errors
    /// Fails with the output of both if one did not succeed.
    pub fn succeed(self, what: &str) -> Result<String> {
        let (client, server) = (self.client.code, self.server.code);
        ensure!(
            self.ok(),
            "'{what}' ended with {client} (client) and {server} (server)\n{}",
            self.said()
        );
        Ok(self.client.stdout)
    }
}
