// SPDX-License-Identifier: GPL-2.0
//! The parameters of the module.

use kernel::{prelude::*, str::CStr};

use crate::{bindings, kclient, module_parameters as parameters};

/// The settings of all sessions of this module.
pub(crate) struct Settings {
    /// "ADDRESS:PORT" of the target.
    pub(crate) portal: &'static CStr,
    /// The name of the target.
    pub(crate) target: &'static CStr,
    /// The name of this initiator.
    pub(crate) initiator: &'static CStr,
    /// True to ask for digests of headers, and of data.
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// The number of this initiator's session: a random one (RFC 7143, 11.12.5).
    pub(crate) isid: [u8; 6],
    /// Seconds in which a connection that was lost must be made again.
    pub(crate) recovery_s: u32,
}

impl Settings {
    /// Returns the parameters.
    ///
    /// # Errors
    ///
    /// `EINVAL` without a portal or a target.
    pub(crate) fn of_module() -> Result<Self> {
        // SAFETY: the functions return strings that stay as long as the module.
        let [portal, target, initiator] = unsafe {
            [bindings::kiscsi_portal(), bindings::kiscsi_target(), bindings::kiscsi_initiator()]
                .map(|text| CStr::from_char_ptr(text))
        };
        if portal.is_empty() || target.is_empty() {
            pr_err!("the parameters portal and target are needed\n");
            return Err(EINVAL);
        }
        let mut isid = [0; 6];
        // SAFETY: the array has this many bytes.
        unsafe { kclient::bindings::get_random_bytes(isid.as_mut_ptr().cast(), isid.len()) };
        isid[0] = 0x80;
        Ok(Self {
            portal,
            target,
            initiator,
            header_digest: parameters::header_digest.value(),
            data_digest: parameters::data_digest.value(),
            isid,
            recovery_s: parameters::recovery_s.value(),
        })
    }
}
