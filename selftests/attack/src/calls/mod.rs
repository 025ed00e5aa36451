// SPDX-License-Identifier: GPL-2.0

//! Every command of the module, as something that can be laid out in memory, run and checked. A new
//! command is one more item of a table here; faults, page boundaries, torture and fuzzing go by that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

use cpupeek_selftests::device::{self, uapi, Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::plan::{self, Plan, RESULT_SIZE};
use cpupeek_selftests::sampler::{Sampler, MS};
use cpupeek_selftests::sys::{self, Errno, Pages, Result};
use cpupeek_selftests::util::Random;

use crate::image::Image;

pub mod cpu_word;
mod policy;
mod read;
mod sampler;

/// The commands, by subject.
const ALL: &[&[Call]] = &[read::CALLS, policy::CALLS, cpu_word::CALLS, sampler::CALLS];

/// All commands.
pub fn all() -> impl Iterator<Item = &'static Call> {
    ALL.iter().copied().flatten()
}

/// How many there are.
pub fn count() -> usize {
    all().count()
}

/// The one with this number.
pub fn nth(number: usize) -> &'static Call {
    all().nth(number % count()).expect("there are that many")
}

/// What a command is given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Device,
    Plan,
    Sampler,
}

impl On {
    pub const ALL: [Self; 3] = [Self::Device, Self::Plan, Self::Sampler];
}

/// Descriptors of which each attempt has its own.
pub struct World {
    pub device: Device,
    pub ops: Vec<Op>,
    plan: Plan,
    pub sampler: Sampler,
}

impl World {
    /// For the CPUs in `cpus`.
    pub fn new(cpus: &[u32]) -> Self {
        let device = Device::open();
        let ops = plan_ops(cpus);
        let plan = Plan::new(&device, &ops);
        let sampler = Sampler::new(&device, &ops, |request| request.interval_ns = 20 * MS);
        Self {
            device,
            ops,
            plan,
            sampler,
        }
    }

    pub fn fd(&self, on: On) -> RawFd {
        match on {
            On::Device => self.device.fd(),
            On::Plan => self.plan.fd(),
            On::Sampler => self.sampler.fd(),
        }
    }

    /// Runs a command that was laid out for this.
    pub fn run(&self, call: &Call, image: &Image) -> Result<()> {
        sys::ioctl(self.fd(call.on), call.cmd, image.argument())
    }

    /// RUN with the results where they are mapped.
    pub fn run_mapped(&self) -> Result<()> {
        self.plan.try_run(plan::cpupeek_run {
            size: size_of::<plan::cpupeek_run>() as u32,
            flags: uapi::CPUPEEK_RUN_MAPPED,
            timeout_ms: 1000,
            ..Default::default()
        })
    }

    /// Checks what such a run has left.
    pub fn check_mapped(&self, pages: &Pages) {
        for (i, op) in self.ops.iter().enumerate() {
            check_answer(op, &plan::answer(op, &pages.read(i * RESULT_SIZE)), false);
        }
    }

    /// The descriptor does what it did before.
    #[track_caller]
    pub fn expect_intact(&self) {
        for asked in &self.ops {
            check_answer(asked, &self.device.read(*asked), true);
        }
    }
}

/// What plans and batches ask of every CPU: who it is, and something that has four words.
pub fn plan_ops(cpus: &[u32]) -> Vec<Op> {
    let of = |&cpu| [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, 1, 0)];
    cpus.iter().flat_map(of).collect()
}

/// What a command is laid out with.
pub struct Scene<'a> {
    pub cpus: &'a [u32],
    pub random: Random,
    /// Every operation has to succeed.
    pub strict: bool,
}

pub struct Call {
    pub name: &'static str,
    pub cmd: u32,
    pub on: On,
    /// Operations in it that the device counts.
    pub ops: fn(&Image) -> u64,
    /// Lays out a valid command. Part 0 is its structure, if it has one.
    pub fill: fn(&mut Image, &mut Scene<'_>),
    /// Checks what a command that ran has left, and undoes it.
    pub check: fn(&Image, &World, &Scene<'_>),
    /// So many parts are used to their last byte; those behind them are the check's.
    pub used: usize,
    /// What becomes of the descriptor is not for others to run into.
    pub lasting: bool,
    /// EPERM without CAP_SYS_RAWIO.
    pub privileged: bool,
}

thread_local! {
    static TALLY: RefCell<BTreeMap<i32, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// How many answers were checked since this was last asked, by status (an errno, or 0).
pub fn take_tally() -> BTreeMap<i32, u64> {
    TALLY.take()
}

/// Checks the answer to an operation: a plausible status, the right CPU, nothing with an error.
#[track_caller]
pub fn check_answer(asked: &Op, answer: &Op, strict: bool) {
    let status = -answer.status;
    TALLY.with_borrow_mut(|tally| *tally.entry(status).or_default() += 1);
    match answer.result() {
        Ok(()) => {
            answer.expect_answer(asked);
            let cpu = u64::from(answer.cpu);
            if asked.kind == device::MSR && asked.reg == TSC_AUX {
                assert_eq!(answer.value() & 0xfff, cpu, "another CPU: {answer:?}");
            }
            if asked.kind == device::CPUID && asked.reg == 1 {
                let apic = u64::from(answer.words()[1] >> 24);
                // QEMU numbers them alike, as tests/proof has checked.
                assert_eq!(apic, cpu, "another CPU: {answer:?}");
            }
        }
        Err(Errno(error)) => {
            assert!(!strict, "{answer:?}");
            let plausible = [
                libc::ENXIO,
                libc::ETIME,
                libc::EACCES,
                libc::EPERM,
                libc::EIO,
            ];
            assert!(plausible.contains(&error), "{answer:?}");
            answer.expect_error(asked, error);
        }
    }
}

fn none(_: &Image) -> u64 {
    0
}

/// Has one register refused, so that there is a refusal to be told of.
pub fn have_a_refusal() {
    let child = sys::fork(|| {
        sys::set_capabilities(!(1 << sys::CAP_SYS_RAWIO));
        let answer = Device::open().read(Op::msr(device::SELF, 0xc000_0082));
        assert_eq!(answer.result(), Err(Errno(libc::EACCES)));
    });
    child.expect_success();
}

/// Keeps the calling thread off the CPU with the highest number, if there is another.
pub fn stay_away() {
    sys::pin(&cpus()[..1]).expect("it is online");
}

/// CPUs that are online now.
pub fn cpus() -> Vec<u32> {
    guest::online()
}
