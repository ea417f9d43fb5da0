//! Congestion control: notifications from the receiver, and a window or a rate at the sender.
//!
//! A router marks packets when its queue grows. The receiver of marked packets sends notifications
//! (CNP, A17.9). The sender reacts to them by a window, or by DCQCN if an operator has asked for
//! it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`notifier`] | notifications of the receiver |
//! | [`window`] | the window of a sender |
//! | [`dcqcn`] | the rate of a sender |

pub mod dcqcn;
pub mod notifier;
pub mod window;

pub use dcqcn::{Parameters, RateControl};
pub use notifier::Notifier;
pub use window::Window;
