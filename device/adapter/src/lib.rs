//! The adapter model: register file, admin commands, TPT, queues, datapath
