// SPDX-License-Identifier: GPL-2.0

//! What the measurements know of the guest that they run in.

use crate::readers::{self, Device, Reader, Sweep};
use crate::record::Key;
use crate::spin::Budget;
use crate::sys;
use cpupeek_client::uapi;
use std::fs::File;
use std::rc::Rc;

/// The guest, and the caller's place in it.
pub struct Guest {
    /// What the host calls it.
    pub env: String,
    pub device: Device,
    /// The CPUs from 0 on.
    pub cpus: Vec<u32>,
    /// The spin budget that the module came with.
    pub usual: Budget,
    /// Frequency of the time stamp counter.
    pub tsc_khz: u32,
}

/// The CPU that the caller stays on.
pub const HOME: u32 = 0;

impl Guest {
    /// Looks around, and moves the caller to its CPU.
    pub fn new(env: &str) -> Result<Self, String> {
        let path = cpupeek_client::DEFAULT_PATH;
        let device = File::open(path)
            .map_err(|error| format!("cannot open {path}: {error}; is the module loaded?"))?;
        let mut info = uapi::cpupeek_info::default();
        // SAFETY: The command is for this type, in which there are no addresses.
        unsafe { sys::ioctl(&device, uapi::CPUPEEK_CONST_IOC_INFO, &mut info) }
            .map_err(|error| format!("{path} does not say what it can do: {error}"))?;
        if info.tsc_khz == 0 {
            return Err("the kernel does not know the frequency of the time stamp counter".into());
        }
        sys::pin(HOME).map_err(|error| format!("cannot stay on CPU {HOME}: {error}"))?;
        sys::without_timer_slack();
        Ok(Self {
            env: env.into(),
            device: Rc::new(device),
            cpus: sys::cpus()?,
            usual: Budget::current()?,
            tsc_khz: info.tsc_khz,
        })
    }

    /// The CPU that is asked where one is asked that is not the caller's.
    pub fn other(&self) -> Result<u32, String> {
        match self.cpus[..] {
            [_, .., last] => Ok(last),
            _ => Err("the measurements need two CPUs: start the guest with more".into()),
        }
    }

    /// A sweep over self, one or all CPUs.
    pub fn sweep(&self, cpus: &str, regs: usize) -> Result<Sweep, String> {
        Ok(Sweep {
            home: HOME,
            cpus: match cpus {
                "self" => vec![HOME],
                "one" => vec![self.other()?],
                _ => self.cpus.clone(),
            },
            regs: readers::registers(regs),
        })
    }

    /// A key of this environment.
    pub fn key(&self, case: &str, cpus: &str, regs: usize, target: &str) -> Key {
        Key {
            env: self.env.clone(),
            case: case.into(),
            cpus: cpus.into(),
            regs: regs as u32,
            target: target.into(),
        }
    }

    /// TSC cycles in nanoseconds.
    pub fn ns(&self, cycles: u64) -> f64 {
        cycles as f64 * 1e6 / f64::from(self.tsc_khz)
    }

    /// A contender in a comparison; `None` if this guest has no such thing.
    pub fn contender(&self, key: Key) -> Result<Option<Contender>, String> {
        let sweep = self.sweep(&key.cpus, key.regs as usize)?;
        let reader = readers::reader(&key.case, &sweep, &self.device)
            .map_err(|error| format!("{} is not possible here: {error}", key.case))?;
        let Some(mut reader) = reader else {
            return Ok(None);
        };
        if key.case != "empty" {
            readers::verify(&key.case, &sweep, &mut *reader)?;
        }
        Ok(Some(Contender {
            budget: Budget::of_case(&key.case, self.usual),
            values: vec![0; sweep.len()],
            key,
            reader,
        }))
    }
}

/// A way to perform a sweep, ready to perform it.
pub struct Contender {
    pub key: Key,
    pub budget: Budget,
    reader: Box<dyn Reader>,
    values: Vec<u64>,
}

impl Contender {
    /// Whether it reads a register at a time, and so several for a sweep.
    pub fn is_serial(&self) -> bool {
        self.key.case == "read" && self.values.len() > 1
    }

    /// Performs the sweep once.
    pub fn sweep(&mut self) -> Result<(), String> {
        self.reader
            .read(&mut self.values)
            .map_err(|error| format!("{:?} cannot read: {error}", self.key))
    }
}
