//! SET_ISCSI and END_COMMAND: the iSCSI mode, and the end of a command without a response.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::Status;
use vrnic_abi::iscsi::{self, EndCommand, IscsiFlags, SetIscsi};
use vrnic_abi::qp::{State, Type};
use vrnic_iscsi::config::{LENGTH_MAX, LENGTH_MIN};
use vrnic_iscsi::{Config, Device};

use super::{Failure, Outcome, bad};
use crate::adapter::Adapter;
use crate::datapath::local_wr;
use crate::host::{Host, Transfers};
use crate::objects::qp::Path;
use crate::objects::qp::tcp::iscsi::Terms;
use crate::objects::qp::tcp::{Content, Promised, Tcp};

pub(in crate::control::admin) fn set_iscsi<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &SetIscsi,
) -> Outcome<()> {
    let terms = terms(params)?;
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    if qp.context.get() != 0 {
        return Err(Status::Permission.into());
    }
    let mut requester = qp.requester.lock();
    let may = matches!(requester.path, Path::Memory | Path::Promised(_));
    if qp.kind != Type::Toe || qp.state() != State::Init || !may {
        return Err(Status::BadState.into());
    }
    requester.path = Path::Promised(Box::new(Promised::Iscsi(terms)));
    Ok(())
}

/// Returns the mode with these parameters.
fn terms(params: &SetIscsi) -> Result<Terms, Failure> {
    let lengths = [
        (params.max_receive.get(), offset_of!(SetIscsi, max_receive)),
        (params.max_send.get(), offset_of!(SetIscsi, max_send)),
        (params.max_burst.get(), offset_of!(SetIscsi, max_burst)),
    ];
    for (length, offset) in lengths {
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&length) {
            return Err(bad(offset));
        }
    }
    let flags = IscsiFlags::from_bits(params.flags).ok_or(bad(offset_of!(SetIscsi, flags)))?;
    let device = iscsi::Device::from_raw(params.device);
    let device = match device.ok_or(bad(offset_of!(SetIscsi, device)))? {
        iscsi::Device::Any => Device::Any,
        iscsi::Device::Disk => Device::Disk,
    };
    let config = Config {
        header_digest: flags.contains(IscsiFlags::HEADER_DIGEST),
        data_digest: flags.contains(IscsiFlags::DATA_DIGEST),
        max_receive: params.max_receive.get(),
        max_send: params.max_send.get(),
        max_burst: params.max_burst.get(),
    };
    Ok(Terms { config, device })
}

/// Ends a command of a QP of any type that has commands.
pub(in crate::control::admin) fn end_command<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &EndCommand,
) -> Outcome<()> {
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    {
        let mut requester = qp.requester.lock();
        if let Path::Tcp(tcp) = &mut requester.path
            && let Tcp { link, content: Content::Iscsi(iscsi) } = &mut **tcp
        {
            let session = &mut iscsi.mode;
            let una = link.tcp().acknowledged();
            // The target would get other bytes in their place.
            if session.outgoing.uses(params.key, una) {
                return Err(Status::Busy.into());
            }
            session.forget(params.key);
        }
        local_wr::end_command(&qp, params.key).map_err(|_| Status::NotFound)?;
    }
    // Only messages of this QP use it.
    adapter.drain(&Transfers::Of(qp.askers()));
    qp.tpt.finish_command(params.key);
    Ok(())
}
