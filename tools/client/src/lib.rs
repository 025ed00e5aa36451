// SPDX-License-Identifier: GPL-2.0

//! Read model-specific registers and CPUID leaves of any CPU through the
//! `cpupeek` kernel module.
//!
//! The crate is a thin, typed layer over the ioctls of `/dev/cpupeek`; what
//! they mean is written in `include/uapi/linux/cpupeek.h`. Nothing in it
//! panics, and each refusal says who refused: the policy, the hardware, or the
//! absence of the CPU ([`OpError`]); or why the device as a whole cannot be
//! used ([`DeviceError`]).
//!
//! ```no_run
//! use cpupeek_client::{BatchOptions, Cpu, Device, Op};
//!
//! let device = Device::open()?;
//!
//! // One register of one CPU.
//! let tsc_aux = device.read_msr(Cpu::Number(3), 0xc000_0103)?;
//! println!("TSC_AUX of CPU 3: {tsc_aux:#x}");
//!
//! // Many at once: every operation has its own answer.
//! let mut ops = [
//!     Op::msr(Cpu::Number(0), 0x1b),
//!     Op::cpuid(Cpu::Number(1), 0, 0),
//! ];
//! device.batch(&mut ops, BatchOptions::default())?;
//! for op in &ops {
//!     match op.result() {
//!         Ok(reading) => println!("CPU {}: {:x?}", reading.cpu, reading.value),
//!         Err(error) => println!("CPU {:?}: {error}", op.cpu()),
//!     }
//! }
//! # Ok::<(), cpupeek_client::Error>(())
//! ```
//!
//! What is looked at often is better sampled: each CPU reads its own registers,
//! and to look at them is no system call.
//!
//! ```no_run
//! use cpupeek_client::{Device, Op, Precision, SamplerOptions};
//! use std::time::Duration;
//!
//! let sampler = Device::open()?.sample(
//!     &[Op::msr(0, 0xe7), Op::msr(0, 0xe8)],
//!     &SamplerOptions {
//!         interval: Duration::from_millis(10),
//!         precision: Precision::Exact,
//!         ring_samples: 0,
//!     },
//! )?;
//! let slot = sampler.slot(0).expect("CPU 0 is sampled");
//! let mut sample = slot.sample();
//! slot.read(&mut sample);
//! println!("sample {}: {:?}", sample.number(), sample.results().next());
//! # Ok::<(), cpupeek_client::Error>(())
//! ```

#![deny(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod affinity;
mod cpu_word;
mod device;
mod error;
mod ioctl;
mod mapping;
mod op;
mod plan;
mod policy;
mod sample;
mod sampler;
// A link to the file of rust/logic that is checked for every interleaving; what is published has it whole.
mod slot_reader;

/// The ABI as it is, generated from `include/uapi/linux/cpupeek.h`.
#[allow(
    missing_docs,
    non_camel_case_types,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks
)]
pub mod uapi;

pub use affinity::{allowed_cpus, WidenedAffinity};
pub use cpu_word::CpuWord;
pub use device::{BatchOptions, Device, Info, Wait, DEFAULT_PATH};
pub use error::{DeviceError, Error, OpError};
pub use op::{Cpu, CpuidRegs, Op, Reading, Register, Value};
pub use plan::Plan;
pub use policy::{
    AllowError, AllowList, AllowedRange, Narrowing, Refusal, Refusals, MAX_ALLOWED_RANGES,
};
pub use sample::Sample;
pub use sampler::{Condition, Past, Precision, Sampler, SamplerOptions, Slot, When};
