// SPDX-License-Identifier: GPL-2.0

//! What there was before.

use super::{Reader, Sweep};
use crate::sys::{self, PerfEvent};
use io_uring::{opcode, types, IoUring};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

/// One open `/dev/cpu/N/msr` for each CPU of a sweep.
struct Files {
    files: Vec<(u32, File)>,
    regs: Vec<u32>,
}

impl Files {
    fn new(sweep: &Sweep) -> io::Result<Self> {
        let open = |&cpu: &u32| {
            let path = format!("/dev/cpu/{cpu}/msr");
            File::open(&path)
                .map(|file| (cpu, file))
                .map_err(|error| io::Error::other(format!("{path}: {error}")))
        };
        Ok(Self {
            files: sweep.cpus.iter().map(open).collect::<io::Result<_>>()?,
            regs: sweep.regs.clone(),
        })
    }
}

/// `pread()` of `/dev/cpu/N/msr`, one register after the other. Sleeps.
pub struct Pread(Files);

impl Pread {
    pub fn new(sweep: &Sweep) -> io::Result<Self> {
        Files::new(sweep).map(Self)
    }
}

impl Reader for Pread {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        let mut values = values.iter_mut();
        for (_, file) in &self.0.files {
            for (&reg, value) in self.0.regs.iter().zip(&mut values) {
                *value = sys::pread(file, reg)?;
            }
        }
        Ok(())
    }
}

/// `X86_IOC_RDMSR_REGS`, one register after the other. Spins in the kernel.
pub struct Regs(Files);

/// `_IOWR('c', 0xA0, __u32[8])`
const X86_IOC_RDMSR_REGS: u32 = 0xc020_63a0;

impl Regs {
    pub fn new(sweep: &Sweep) -> io::Result<Self> {
        Files::new(sweep).map(Self)
    }
}

impl Reader for Regs {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        let mut values = values.iter_mut();
        for (_, file) in &self.0.files {
            for (&reg, value) in self.0.regs.iter().zip(&mut values) {
                // EAX, ECX, EDX, EBX, ESP, EBP, ESI, EDI
                let mut regs = [0u32, reg, 0, 0, 0, 0, 0, 0];
                // SAFETY: The command is for eight words, in which there are no addresses.
                unsafe { sys::ioctl(file, X86_IOC_RDMSR_REGS, &mut regs) }?;
                *value = u64::from(regs[2]) << 32 | u64::from(regs[0]);
            }
        }
        Ok(())
    }
}

/// Moves to each CPU, and reads there.
pub struct Migrate {
    files: Files,
    home: u32,
}

impl Migrate {
    pub fn new(sweep: &Sweep) -> io::Result<Self> {
        Ok(Self {
            files: Files::new(sweep)?,
            home: sweep.home,
        })
    }
}

impl Reader for Migrate {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        let mut values = values.iter_mut();
        for (cpu, file) in &self.files.files {
            sys::pin(*cpu)?;
            for (&reg, value) in self.files.regs.iter().zip(&mut values) {
                *value = sys::pread(file, reg)?;
            }
        }
        sys::pin(self.home)
    }
}

/// io_uring over the same files: all reads submitted at once, by kernel threads.
pub struct Uring {
    ring: IoUring,
    files: Files,
    buffers: Vec<u64>,
    /// Reads may be under way into the buffers.
    busy: bool,
}

impl Uring {
    pub fn new(sweep: &Sweep) -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new((sweep.len() as u32).next_power_of_two())?,
            files: Files::new(sweep)?,
            buffers: vec![0; sweep.len()],
            busy: false,
        })
    }
}

impl Reader for Uring {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        self.busy = true;
        let mut buffers = self.buffers.iter_mut();
        let mut queue = self.ring.submission();
        for (_, file) in &self.files.files {
            for (&reg, buffer) in self.files.regs.iter().zip(&mut buffers) {
                let fd = types::Fd(file.as_raw_fd());
                let entry = opcode::Read::new(fd, std::ptr::from_mut(buffer).cast(), 8)
                    .offset(reg.into())
                    .build();
                // SAFETY: The buffer is this reader's, whose `read()` waits for all completions.
                unsafe { queue.push(&entry) }.map_err(io::Error::other)?;
            }
        }
        drop(queue);
        self.ring.submit_and_wait(self.buffers.len())?;
        let mut done = 0;
        let mut failed = None;
        for entry in self.ring.completion() {
            if entry.result() != 8 {
                failed = Some(io::Error::from_raw_os_error(entry.result().min(0).abs()));
            }
            done += 1;
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if done != self.buffers.len() {
            return Err(io::Error::other("io_uring has lost a read"));
        }
        self.busy = false;
        values.copy_from_slice(&self.buffers);
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.busy {
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

/// perf's events of the PMU `msr`: one group on each CPU, read at once. Spins in the kernel, and
/// knows a handful of registers, so that this reads the TSC every time.
pub struct Perf {
    groups: Vec<(File, Vec<OwnedFd>)>,
    /// The number of events, and their values.
    answer: Vec<u8>,
}

/// `PERF_FORMAT_GROUP`
const FORMAT_GROUP: u64 = 1 << 3;

impl Perf {
    /// `None` if the kernel has no such PMU.
    pub fn new(sweep: &Sweep) -> io::Result<Option<Self>> {
        let Ok(kind) = fs::read_to_string("/sys/bus/event_source/devices/msr/type") else {
            return Ok(None);
        };
        let event = PerfEvent {
            kind: kind.trim().parse().map_err(io::Error::other)?,
            size: size_of::<PerfEvent>() as u32,
            config: 0,
            sample_period: 0,
            sample_type: 0,
            read_format: FORMAT_GROUP,
            flags: 0,
            wakeup_events: 0,
            bp_type: 0,
            config1: 0,
        };
        let mut groups = Vec::new();
        for &cpu in &sweep.cpus {
            let leader = sys::perf_event_open(&event, cpu, None)?;
            let others = (1..sweep.regs.len())
                .map(|_| sys::perf_event_open(&event, cpu, Some(&leader)))
                .collect::<io::Result<Vec<_>>>()?;
            groups.push((File::from(leader), others));
        }
        Ok(Some(Self {
            groups,
            answer: vec![0; 8 * (1 + sweep.regs.len())],
        }))
    }
}

impl Reader for Perf {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        let mut values = values.iter_mut();
        for (leader, _) in &mut self.groups {
            leader.read_exact(&mut self.answer)?;
            let words = self.answer.chunks_exact(8).skip(1);
            for (word, value) in words.zip(&mut values) {
                *value = u64::from_ne_bytes(word.try_into().map_err(io::Error::other)?);
            }
        }
        Ok(())
    }

    fn reads_any_register(&self) -> bool {
        false
    }
}
