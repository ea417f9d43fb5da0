//! Names of the interface's numbers in the text of rules: `LocLenErr` is `loc-len-err`.

use std::fmt::Debug;

use vrnic_abi::admin;
use vrnic_abi::cq;
use vrnic_abi::eq;
use vrnic_abi::sq;

/// Returns the name of a variant.
pub fn name_of(variant: &impl Debug) -> String {
    let mut name = String::new();
    for (at, letter) in format!("{variant:?}").char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Returns the variant with this name, among those with the numbers from 0 to 255.
fn named<T: Debug>(name: &str, of: impl Fn(u8) -> Option<T>) -> Option<T> {
    (0..=u8::MAX).filter_map(of).find(|variant| name_of(variant) == name)
}

/// Returns the operation of a send queue with this name.
pub(crate) fn request(name: &str) -> Option<sq::Opcode> {
    named(name, sq::Opcode::from_raw)
}

/// Returns the opcode of completions with this name.
pub(crate) fn completion(name: &str) -> Option<cq::Opcode> {
    named(name, cq::Opcode::from_raw)
}

/// Returns the kind of event with this name.
pub(crate) fn event(name: &str) -> Option<eq::Kind> {
    named(name, eq::Kind::from_raw)
}

/// Returns the admin command with this name.
pub(crate) fn command(name: &str) -> Option<admin::Opcode> {
    named(name, |number| admin::Opcode::from_raw(number.into()))
}

/// Returns the status of completions with this name, unless it is that of success.
pub(crate) fn status(name: &str) -> Option<cq::Status> {
    named(name, cq::Status::from_raw).filter(|status| *status != cq::Status::Success)
}

/// Returns the status of admin commands with this name, unless it is that of success.
pub(crate) fn command_status(name: &str) -> Option<admin::Status> {
    let status = named(name, |number| admin::Status::from_raw(number.into()));
    status.filter(|status| *status != admin::Status::Ok)
}
