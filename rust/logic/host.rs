// SPDX-License-Identifier: GPL-2.0

//! The module's pure logic as a host crate: the module itself includes `mod.rs`.

#![no_std]

#[path = "mod.rs"]
mod logic;

pub use logic::*;

#[path = "sampling/reader.rs"]
pub mod slot_reader;
