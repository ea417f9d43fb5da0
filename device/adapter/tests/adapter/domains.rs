//! Numbers of the objects of one function in the commands, work requests, doorbells and messages of
//! another. In one half of the tests, no object of function A has the number, so that only the
//! object of function C could be meant: it is refused, with the status of an absent object. In the
//! other half, both functions have an object with the number: A's own one is used. C is unchanged
//! in either case: its memory, its objects and its counters.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `function` | a function with an object of each kind, and a picture of its state |
//! | `commands` | numbers in commands |
//! | `keys` | keys in work requests of A, and in messages of its peer: by copy, by packets, by TCP |
//! | `table` | the domains, by which a table of keys, a turn and a range refuse the QPs of another function |
//! | `queues` | numbers of QPs and SRQs in messages, doorbells, ranges |

mod commands;
mod function;
mod keys;
mod queues;
mod table;
