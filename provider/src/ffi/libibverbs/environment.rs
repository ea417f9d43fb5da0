// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Settings by variables of the environment, and warnings on stderr.

use std::ffi::CStr;
use std::io::{self, Write};
use std::str::FromStr;

/// Bytes of a message to the user.
const WARNING: usize = 512;

/// Returns the value of an environment variable, or the default; `known` lists its values.
pub(in crate::ffi) fn policy<T: FromStr + Default>(variable: &CStr, known: &str) -> T {
    // SAFETY: a name that ends. The answer is good until the program changes its environment, which
    // no library can prevent; `std::env` would copy it into memory that there may not be.
    let text = unsafe { libc::getenv(variable.as_ptr()) };
    if text.is_null() {
        return T::default();
    }
    // SAFETY: a text that ends, and which the program leaves as it is meanwhile.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let (name, text) = (variable.to_bytes().escape_ascii(), text.to_bytes().escape_ascii());
        warn(format_args!("{name}={text} is none of {known}; taking the default"));
        T::default()
    })
}

/// Prints a warning on stderr, as libibverbs itself does. Takes no memory.
pub(in crate::ffi) fn warn(text: std::fmt::Arguments<'_>) {
    let mut line = [0; WARNING];
    let mut rest = &mut line[..];
    // A long text is cut.
    let _ = writeln!(rest, "libvrnic: {text}");
    let length = WARNING - rest.len();
    if let Some(last) = line.last_mut().filter(|_| length == WARNING) {
        *last = b'\n';
    }
    // A closed stderr is no reason to fail.
    let _ = rustix::io::write(io::stderr(), line.get(..length).unwrap_or_default());
}
