//! System calls of programs that the supervisor answers instead of the kernel: the filter that
//! selects them, and the loop that receives them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`filter`] | the filter that selects the system calls |
//! | [`launch`] | the start of the program with the filter |
//! | [`listener`] | the file by which the kernel passes the system calls on |
//! | [`call`] | a system call, and its answer |
//! | [`task`] | what `/proc` tells of the thread that has made it |
//! | [`paths`] | the paths that belong to the adapters |
//! | [`tree`] | the files that programs see there |
//! | [`files`] | answers to system calls that name a file |
//! | [`stat`] | attributes of files, as the kernel writes them |

pub mod call;
pub mod files;
pub mod filter;
pub mod launch;
pub mod listener;
pub mod paths;
pub mod stat;
pub mod task;
pub mod tree;
