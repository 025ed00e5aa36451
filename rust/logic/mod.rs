// SPDX-License-Identifier: GPL-2.0

//! Pure logic: knows only `core`, so that it is unit-tested on the host.

pub mod budget;
pub mod catalogue;
pub mod cpu_word;
pub mod energy;
pub mod frequency;
pub mod freshness;
pub mod in_flight;
pub mod plan;
pub mod policy;
pub mod replacement;
pub mod round;
pub mod sampling;
