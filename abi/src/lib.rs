//! Registers, doorbells, queues and commands of the vrnic adapter
#![no_std]
