// SPDX-License-Identifier: GPL-2.0
//! The side that has the disks.

use kernel::{prelude::*, sync::atomic::Atomic};

use crate::{
    DEPTH, NAME,
    desk::Desk,
    disk::Disks,
    kclient::{cm::Id, connection::Connection, cq::Poll, server::Service},
};

impl Service for Disks {
    fn serve(&self, id: Id, stopping: &Atomic<bool>) -> Result {
        let connection = Connection::new(id, Poll::Softirq, DEPTH, NAME)?;
        let result = Desk::new(&connection, self, stopping).and_then(|desk| {
            connection.id().connect(true)?;
            desk.serve()
        });
        connection.drain();
        match result {
            Err(ESHUTDOWN) => Ok(()),
            result => result,
        }
    }
}
