// SPDX-License-Identifier: GPL-2.0

//! Random choices.

pub use cpupeek_mutate::Random;
