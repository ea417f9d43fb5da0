//! Congestion control: notifications from the receiver ([`notifier`]), and a window at the sender
//! ([`window`]).
//!
//! A router marks packets when its queue grows. The receiver of marked packets sends notifications
//! (CNP, A17.9). The sender reacts to them by a window.

pub mod notifier;
pub mod window;

pub use notifier::Notifier;
pub use window::Window;
