// SPDX-License-Identifier: GPL-2.0

//! The device: opening it, and its commands.

use crate::error::{DeviceError, Error, OpError};
use crate::ioctl;
use crate::op::{Cpu, CpuidRegs, Op, Reading, Value};
use crate::plan::Plan;
use crate::sampler::{Sampler, SamplerOptions};
use crate::uapi;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the device is unless somebody moved it.
pub const DEFAULT_PATH: &str = "/dev/cpupeek";

/// What the module can do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// `CPUPEEK_FEATURE_*` bits, also those that this library does not know.
    pub features: u64,
    /// Most operations in one batch.
    pub max_batch_ops: u32,
    /// Most operations that one CPU performs with its interrupts off at a
    /// stretch.
    pub max_round_ops: u32,
    /// CPU numbers are below this.
    pub nr_cpu_ids: u32,
    /// Frequency of the time stamp counter in kHz, if known.
    pub tsc_khz: Option<u32>,
    /// Whether time stamps of different CPUs may be compared.
    pub tsc_stable: bool,
    /// How long a single read waits at most.
    pub read_timeout: Duration,
}

impl Info {
    /// Whether the module has CPUPEEK_IOC_READ.
    pub const fn has_read(&self) -> bool {
        self.features & uapi::CPUPEEK_FEATURE_READ as u64 != 0
    }

    /// Whether the module has CPUPEEK_IOC_BATCH.
    pub const fn has_batch(&self) -> bool {
        self.features & uapi::CPUPEEK_FEATURE_BATCH as u64 != 0
    }

    /// Whether the module has plans.
    pub const fn has_plan(&self) -> bool {
        self.features & uapi::CPUPEEK_FEATURE_PLAN as u64 != 0
    }

    /// Whether the module has an allowlist, and descriptors can be narrowed.
    pub const fn has_policy(&self) -> bool {
        self.features & uapi::CPUPEEK_FEATURE_POLICY as u64 != 0
    }

    /// Whether the module has samplers.
    pub const fn has_sampler(&self) -> bool {
        self.features & uapi::CPUPEEK_FEATURE_SAMPLER as u64 != 0
    }

    /// Whether threads can have [their CPU's number](crate::CpuWord) in memory.
    pub const fn has_cpu_word(&self) -> bool {
        self.features & uapi::CPUPEEK_FEATURE_CPU_WORD as u64 != 0
    }

    /// Nothing if the module does not even know the first version's fields or
    /// cannot read, which no version of it cannot.
    fn from_raw(raw: &uapi::cpupeek_info) -> Option<Self> {
        let info = Info {
            features: raw.features,
            max_batch_ops: raw.max_batch_ops,
            max_round_ops: raw.max_round_ops,
            nr_cpu_ids: raw.nr_cpu_ids,
            tsc_khz: (raw.tsc_khz != 0).then_some(raw.tsc_khz),
            tsc_stable: raw.tsc_stable != 0,
            read_timeout: Duration::from_millis(raw.read_timeout_ms.into()),
        };
        let complete = raw.size as usize >= size_of::<uapi::cpupeek_info>();
        (complete && info.has_read()).then_some(info)
    }
}

/// How the caller waits for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// As the module thinks best: spin briefly, then sleep.
    #[default]
    Adaptive,
    /// Sleep at once.
    Sleep,
    /// Spin as long as the module allows, then sleep.
    Spin,
}

/// How a batch is performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    /// How to wait.
    pub wait: Wait,
    /// How long to wait for all of it; for ever without. It is counted in whole
    /// milliseconds, rounded up, and at least one.
    pub timeout: Option<Duration>,
}

impl BatchOptions {
    fn header(&self, timeout_ms: u32) -> uapi::cpupeek_batch {
        uapi::cpupeek_batch {
            flags: match self.wait {
                Wait::Adaptive => 0,
                Wait::Sleep => uapi::CPUPEEK_BATCH_SLEEP,
                Wait::Spin => uapi::CPUPEEK_BATCH_SPIN,
            },
            timeout_ms,
            ..Default::default()
        }
    }

    pub(crate) fn run_header(&self) -> uapi::cpupeek_run {
        uapi::cpupeek_run {
            flags: match self.wait {
                Wait::Adaptive => 0,
                Wait::Sleep => uapi::CPUPEEK_RUN_SLEEP,
                Wait::Spin => uapi::CPUPEEK_RUN_SPIN,
            },
            timeout_ms: self.timeout.map_or(0, milliseconds),
            ..Default::default()
        }
    }
}

/// The module's `timeout_ms` for what is left of a timeout, never 0, which
/// would mean for ever.
fn milliseconds(left: Duration) -> u32 {
    let ms = left.as_nanos().div_ceil(1_000_000).max(1);
    u32::try_from(ms).unwrap_or(u32::MAX)
}

/// An open `/dev/cpupeek`.
///
/// What it may read was decided when it was opened, and goes with the
/// descriptor.
#[derive(Debug)]
pub struct Device {
    file: File,
    info: Info,
}

impl Device {
    /// Opens [`DEFAULT_PATH`].
    pub fn open() -> Result<Self, DeviceError> {
        Self::open_path(DEFAULT_PATH)
    }

    /// Opens the device at `path` and asks the module what it can do.
    pub fn open_path(path: impl AsRef<Path>) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let cannot_open = |error: io::Error| DeviceError::from_open(path.into(), error);

        // Opening has effects on other kinds of file: it waits on a FIFO.
        let kind = fs::metadata(path).map_err(cannot_open)?.file_type();
        if !kind.is_char_device() {
            return Err(DeviceError::NotCpupeek { path: path.into() });
        }
        Self::from_file(File::open(path).map_err(cannot_open)?, path)
    }

    /// Uses a descriptor that somebody else has opened, and perhaps
    /// [narrowed](Device::narrow), and asks the module what it can do.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, DeviceError> {
        let name = format!("descriptor {}", fd.as_raw_fd());
        Self::from_file(fd.into(), Path::new(&name))
    }

    fn from_file(file: File, path: &Path) -> Result<Self, DeviceError> {
        let info =
            ioctl::info(&file).map_err(|errno| DeviceError::from_info(path.into(), errno))?;
        match Info::from_raw(&info) {
            Some(info) => Ok(Device { file, info }),
            None => Err(DeviceError::UnknownAbi { path: path.into() }),
        }
    }

    /// What the module could do when the device was opened.
    pub const fn info(&self) -> &Info {
        &self.info
    }

    /// Performs one operation.
    pub fn read(&self, op: &Op) -> Result<Reading, Error> {
        let mut op = *op;
        self.perform(&mut op)?;
        Ok(op.result()?)
    }

    /// Reads a model-specific register.
    pub fn read_msr(&self, cpu: impl Into<Cpu>, reg: u32) -> Result<u64, Error> {
        match self.read(&Op::msr(cpu, reg))?.value {
            Value::Msr(value) => Ok(value),
            Value::Cpuid(_) => Err(OpError::NotRead.into()),
        }
    }

    /// Executes CPUID.
    pub fn cpuid(&self, cpu: impl Into<Cpu>, leaf: u32, subleaf: u32) -> Result<CpuidRegs, Error> {
        match self.read(&Op::cpuid(cpu, leaf, subleaf))?.value {
            Value::Cpuid(regs) => Ok(regs),
            Value::Msr(_) => Err(OpError::NotRead.into()),
        }
    }

    /// Performs all of `ops`, all CPUs at once, and leaves each answer in
    /// [`Op::result`].
    ///
    /// More operations than [`Info::max_batch_ops`] go in several batches, one
    /// after the other. A module without batches gets the operations one by
    /// one; it waits as it likes then, and the timeout is looked at in between.
    ///
    /// On an error the operations that have no answer yet say
    /// [`OpError::NotRead`].
    pub fn batch(&self, ops: &mut [Op], options: BatchOptions) -> Result<(), DeviceError> {
        ops.iter_mut().for_each(Op::forget_answer);

        let size = if self.info.has_batch() {
            self.info.max_batch_ops.max(1) as usize
        } else {
            1
        };
        let timeout = options.timeout.map(|t| t.max(Duration::from_millis(1)));
        let start = Instant::now();
        for chunk in ops.chunks_mut(size) {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            match (chunk, left) {
                (chunk, Some(Duration::ZERO)) => {
                    chunk.iter_mut().for_each(Op::time_out);
                }
                (chunk, left) if self.info.has_batch() => {
                    let header = options.header(left.map_or(0, milliseconds));
                    ioctl::batch(&self.file, header, chunk)
                        .map_err(|errno| DeviceError::from_command("BATCH", errno))?;
                }
                (chunk, _) => chunk.iter_mut().try_for_each(|op| self.perform(op))?,
            }
        }
        Ok(())
    }

    /// Has the module check `ops` and keep them, to be performed again and
    /// again.
    ///
    /// A plan takes at most [`Info::max_batch_ops`] operations, and
    /// [`Cpu::Current`] is malformed in it. Only a module that
    /// [has plans](Info::has_plan) can do this.
    pub fn prepare(&self, ops: &[Op]) -> Result<Plan, DeviceError> {
        let fd = ioctl::prepare(&self.file, ops)
            .map_err(|errno| DeviceError::from_command("PREPARE", errno))?;
        Ok(Plan::new(fd, ops))
    }

    /// Has every CPU read its own of `ops` again and again, to be looked at
    /// without a system call.
    ///
    /// At most [`Info::max_round_ops`] operations of each CPU, and no
    /// [`Cpu::Current`]. Only a module that [has samplers](Info::has_sampler)
    /// can do this.
    pub fn sample(&self, ops: &[Op], options: &SamplerOptions) -> Result<Sampler, DeviceError> {
        Sampler::new(self.file.as_fd(), ops, false, options)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn perform(&self, op: &mut Op) -> Result<(), DeviceError> {
        op.forget_answer();
        ioctl::read(&self.file, op).map_err(|errno| DeviceError::from_command("READ", errno))
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw_info() -> uapi::cpupeek_info {
        uapi::cpupeek_info {
            size: 40,
            features: 1,
            max_batch_ops: 65536,
            max_round_ops: 64,
            nr_cpu_ids: 4,
            tsc_khz: 2_000_000,
            tsc_stable: 1,
            read_timeout_ms: 1000,
            ..Default::default()
        }
    }

    #[test]
    fn info_is_translated() {
        let info = Info::from_raw(&raw_info()).expect("complete");
        assert!(info.has_read() && !info.has_batch());
        assert_eq!(info.tsc_khz, Some(2_000_000));
        assert!(info.tsc_stable);
        assert_eq!(info.read_timeout, Duration::from_secs(1));

        let mut raw = raw_info();
        raw.features = 1 << 63 | 3;
        raw.tsc_khz = 0;
        raw.tsc_stable = 0;
        raw.size = 64;
        let info = Info::from_raw(&raw).expect("a longer structure is fine");
        assert!(info.has_batch());
        assert_eq!(info.features, 1 << 63 | 3);
        assert_eq!((info.tsc_khz, info.tsc_stable), (None, false));
    }

    #[test]
    fn an_unknown_abi_is_noticed() {
        let mut raw = raw_info();
        raw.size = 39;
        assert_eq!(Info::from_raw(&raw), None);
        let mut raw = raw_info();
        raw.features = 2;
        assert_eq!(Info::from_raw(&raw), None);
        assert_eq!(Info::from_raw(&Default::default()), None);
    }

    #[test]
    fn timeouts_round_up_and_never_mean_for_ever() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_micros(1001)), 2);
        assert_eq!(milliseconds(Duration::from_secs(3)), 3000);
        assert_eq!(milliseconds(Duration::MAX), u32::MAX);
    }

    #[test]
    fn batch_headers_carry_the_wait() {
        let flags = |wait| {
            let options = BatchOptions {
                wait,
                timeout: None,
            };
            options.header(0).flags
        };
        assert_eq!(flags(Wait::Adaptive), 0);
        assert_eq!(flags(Wait::Sleep), 1);
        assert_eq!(flags(Wait::Spin), 2);
        let header = BatchOptions::default().header(7);
        assert_eq!((header.timeout_ms, header.reserved, header.tsc), (7, 0, 0));
    }

    #[test]
    fn run_headers_carry_the_options() {
        let header = |wait, timeout| {
            let header = BatchOptions { wait, timeout }.run_header();
            (header.flags, header.timeout_ms, header.tsc)
        };
        assert_eq!(header(Wait::Adaptive, None), (0, 0, 0));
        assert_eq!(header(Wait::Sleep, Some(Duration::ZERO)), (1, 1, 0));
        assert_eq!(
            header(Wait::Spin, Some(Duration::from_secs(1))),
            (2, 1000, 0)
        );
    }

    #[test]
    fn what_is_not_the_device_is_told_apart() {
        let error = |path: &str| Device::open_path(path).expect_err(path).to_string();
        assert!(error("/nonexistent/cpupeek").contains("modprobe cpupeek"));
        assert!(error("/").contains("is not a cpupeek device"));
        assert!(error("/dev/null").contains("is not a cpupeek device"));
        assert!(error("/proc/self/status").contains("is not a cpupeek device"));
        assert!(error("/proc/self/status/x").starts_with("cannot open"));
    }

    #[test]
    fn the_path_is_the_headers() {
        assert_eq!(uapi::CPUPEEK_DEVICE.to_str(), Ok(DEFAULT_PATH));
    }
}
