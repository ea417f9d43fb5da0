//! Kernels and disks from which guests boot, and the files on them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`overlay`] | files on top of the guests' base image |
//! | [`archive`] | unpacks such files in a guest |
//! | [`hosts`] | the names of guests, as programs look them up |
//! | [`root`] | the kernel and the disk from which a guest boots |
//! | [`system`] | guests that are ordinary Debian systems |
//! | [`disk`] | a disk of the user with a whole system, as the root of guests |
//! | [`kernel`] | releases of kernels, and modules that fit them |
//! | [`stock`] | all modules of the stock kernel |

pub mod archive;
pub mod disk;
pub mod hosts;
pub mod kernel;
pub mod overlay;
pub mod root;
pub mod stock;
pub mod system;
