//! vrnicd

fn main() {}
