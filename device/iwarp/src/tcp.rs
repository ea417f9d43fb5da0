//! The interface to the TCP engine: positions in a stream, the traits for source and sink, and
//! the budget for buffers.

pub use vrnic_tcp::{
    Budget, Delivered, Delivery, Gone, Offered, Rest, Share, Sink, Source, StreamPos, Then, Undone,
};
