// SPDX-License-Identifier: GPL-2.0

//! What there is now. The commands are issued as they are, without the client library's comforts.

use super::{Reader, Sweep};
use crate::sys;
use cpupeek_client::uapi;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

/// How to wait for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Adaptive,
    Sleep,
    Spin,
}

impl Wait {
    fn flags(self) -> u32 {
        match self {
            Self::Adaptive => 0,
            Self::Sleep => uapi::CPUPEEK_BATCH_SLEEP,
            Self::Spin => uapi::CPUPEEK_BATCH_SPIN,
        }
    }
}

/// `/dev/cpupeek`.
pub type Device = Rc<File>;

fn operations(sweep: &Sweep) -> Vec<uapi::cpupeek_op> {
    let operation = |(cpu, reg)| uapi::cpupeek_op {
        cpu,
        kind: uapi::CPUPEEK_MSR as u16,
        reg,
        ..Default::default()
    };
    sweep.pairs().map(operation).collect()
}

/// The value, or the status as an error.
fn value(status: i32, value: u64) -> io::Result<u64> {
    if status == 0 {
        Ok(value)
    } else {
        Err(io::Error::from_raw_os_error(-status))
    }
}

impl From<&uapi::cpupeek_op> for Answer {
    fn from(op: &uapi::cpupeek_op) -> Self {
        // SAFETY: All bits are integers.
        Self(op.status, unsafe { op.__bindgen_anon_1.value })
    }
}

struct Answer(i32, u64);

/// `CPUPEEK_IOC_READ`, one after the other.
pub struct Reads {
    device: Device,
    ops: Vec<uapi::cpupeek_op>,
}

impl Reads {
    pub fn new(device: &Device, sweep: &Sweep) -> Self {
        Self {
            device: device.clone(),
            ops: operations(sweep),
        }
    }

    /// The target's TSC at its last operation.
    pub fn last_tsc(&self) -> u64 {
        self.ops.last().map_or(0, |op| op.tsc)
    }
}

impl Reader for Reads {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        for (op, slot) in self.ops.iter_mut().zip(values) {
            // SAFETY: The command is for this type, in which there are no addresses.
            unsafe { sys::ioctl(&*self.device, uapi::CPUPEEK_CONST_IOC_READ, op) }?;
            let Answer(status, read) = Answer::from(&*op);
            *slot = value(status, read)?;
        }
        Ok(())
    }
}

/// `CPUPEEK_IOC_BATCH`.
pub struct Batch {
    device: Device,
    ops: Vec<uapi::cpupeek_op>,
    flags: u32,
    /// With stamps, indexed by CPU number.
    stamps: Vec<uapi::cpupeek_tsc_pair>,
}

impl Batch {
    pub fn new(device: &Device, sweep: &Sweep, wait: Wait) -> Self {
        Self {
            device: device.clone(),
            ops: operations(sweep),
            flags: wait.flags(),
            stamps: Vec::new(),
        }
    }

    /// A batch that asks for nothing.
    pub fn empty(device: &Device) -> Self {
        Self {
            device: device.clone(),
            ops: Vec::new(),
            flags: 0,
            stamps: Vec::new(),
        }
    }

    /// Asks for each CPU's first and last time stamp too.
    pub fn with_stamps(mut self) -> Self {
        let cpus = self.ops.iter().map(|op| op.cpu as usize + 1).max();
        self.stamps = vec![Default::default(); cpus.unwrap_or(0)];
        self.flags |= uapi::CPUPEEK_BATCH_TSC_PAIR;
        self
    }

    /// How long a CPU has worked on the last batch, in TSC cycles.
    pub fn cycles(&self, cpu: u32) -> u64 {
        let stamps = self.stamps.get(cpu as usize);
        stamps.map_or(0, |pair| pair.end.wrapping_sub(pair.start))
    }

    /// The target's TSC at its last operation.
    pub fn last_tsc(&self) -> u64 {
        self.ops.last().map_or(0, |op| op.tsc)
    }

    /// Performs the batch.
    pub fn perform(&mut self) -> io::Result<()> {
        let tsc = if self.stamps.is_empty() {
            0
        } else {
            self.stamps.as_mut_ptr().expose_provenance() as u64
        };
        let mut header = uapi::cpupeek_batch {
            size: size_of::<uapi::cpupeek_batch>() as u32,
            flags: self.flags,
            nr_ops: self.ops.len() as u32,
            op_size: size_of::<uapi::cpupeek_op>() as u32,
            ops: self.ops.as_mut_ptr().expose_provenance() as u64,
            tsc,
            ..Default::default()
        };
        // SAFETY: The command is for this type. The operations are ours, of that number and size,
        // and so are the stamps, as many as the highest CPU number asks for.
        unsafe { sys::ioctl(&*self.device, uapi::CPUPEEK_CONST_IOC_BATCH, &mut header) }
    }
}

impl Reader for Batch {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        self.perform()?;
        for (op, slot) in self.ops.iter().zip(values) {
            let Answer(status, read) = Answer::from(op);
            *slot = value(status, read)?;
        }
        Ok(())
    }
}

/// A prepared plan, whose results come through the call.
pub struct Plan {
    plan: OwnedFd,
    results: Vec<uapi::cpupeek_result>,
}

impl Plan {
    pub fn new(device: &Device, sweep: &Sweep) -> io::Result<Self> {
        let mut ops = operations(sweep);
        let mut header = uapi::cpupeek_prepare {
            size: size_of::<uapi::cpupeek_prepare>() as u32,
            nr_ops: ops.len() as u32,
            op_size: size_of::<uapi::cpupeek_op>() as u32,
            ops: ops.as_mut_ptr().expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: The command is for this type, and the operations are ours, of that number and
        // size.
        unsafe { sys::ioctl(&**device, uapi::CPUPEEK_CONST_IOC_PREPARE, &mut header) }?;
        Ok(Self {
            // SAFETY: The descriptor is new, and nobody else's.
            plan: unsafe { OwnedFd::from_raw_fd(header.fd) },
            results: vec![Default::default(); ops.len()],
        })
    }
}

impl Reader for Plan {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        let mut header = uapi::cpupeek_run {
            size: size_of::<uapi::cpupeek_run>() as u32,
            nr_results: self.results.len() as u32,
            results: self.results.as_mut_ptr().expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: The command is for this type, and the results are ours, of that number.
        unsafe { sys::ioctl(&self.plan, uapi::CPUPEEK_CONST_IOC_RUN, &mut header) }?;
        for (result, slot) in self.results.iter().zip(values) {
            // SAFETY: All bits are integers.
            *slot = value(result.status, unsafe { result.__bindgen_anon_1.value })?;
        }
        Ok(())
    }
}
