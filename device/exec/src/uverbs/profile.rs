//! What the device of a profile refuses, before and after a request is executed.

use rustix::io::Errno;
use vrnic_abi::qp::Type;
use vrnic_profiles::{Object, Profile};

use super::request::Request;
use super::wire::{cq, device, mr, qp, srq};
use super::write;

/// Returns the kind of object that a request creates, if a profile may refuse it.
pub fn created(request: &Request<'_>) -> Option<Object> {
    match request.method() {
        (qp::OBJECT, qp::CREATE) => pair(request.value(qp::TYPE)),
        (cq::OBJECT, cq::CREATE) => Some(Object::Cq),
        (srq::OBJECT, srq::CREATE) => Some(Object::Srq),
        (mr::OBJECT, mr::REG_DM) => Some(Object::Mr),
        (device::OBJECT, device::INVOKE_WRITE) => {
            let number: u64 = request.value(device::WRITE_COMMAND);
            match u32::try_from(number).ok()? {
                write::REG_MR => Some(Object::Mr),
                write::ALLOC_MW => Some(Object::Mw),
                write::OPEN_XRCD => Some(Object::Xrc),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the kind of a type of queue pairs.
fn pair(number: u64) -> Option<Object> {
    Some(match u8::try_from(number).ok().and_then(Type::from_raw)? {
        Type::Rc => Object::Rc,
        Type::Uc => Object::Uc,
        Type::Ud => Object::Ud,
        Type::XrcIni | Type::XrcTgt => Object::Xrc,
        _ => return None,
    })
}

/// Checks that the device of a profile has such objects.
///
/// # Errors
/// The error of that device.
pub fn check(profile: &Profile, object: Option<Object>) -> Result<(), Errno> {
    match object.and_then(|object| profile.refusal(object)) {
        Some(refusal) => Err(Errno::from_raw_os_error(refusal.number())),
        None => Ok(()),
    }
}

/// Returns the error of the device of a profile for one of the adapter.
pub fn error(profile: &Profile, object: Option<Object>, errno: Errno) -> Errno {
    let exhausted = object.and_then(|object| profile.exhaustion(object));
    match exhausted {
        Some(exhausted) if errno == Errno::NOMEM => {
            Errno::from_raw_os_error(exhausted.error.number())
        }
        _ => errno,
    }
}
