// SPDX-License-Identifier: GPL-2.0

//! Samplers: the protocols of their memory, when they sample, and what is worth telling.

pub mod claim;
pub mod map;
pub mod schedule;
pub mod slot;
pub mod watch;
