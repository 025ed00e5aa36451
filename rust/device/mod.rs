// SPDX-License-Identifier: GPL-2.0

//! The device and plans: open, ioctl, user memory.

mod attributes;
mod copy;
mod cpu_word;
mod node;
mod plan;
mod policy;
mod sampler;

use crate::{
    cache::Cache,
    engine::{
        Batch,
        Engine,
        Manner,
        Plan,
        Spare,
        MAX_BATCH_OPS, //
    },
    kapi::{
        file::{
            Descriptor,
            NewFile, //
        },
        misc::{
            Attribute,
            Device, //
        },
        regs,
        uapi::{
            self,
            Info,
            Op, //
        },
        user_ops, //
    },
    logic::round,
    policy::{
        Access,
        Policy, //
    },
    sampler::Samplers,
    stats::Counter, //
};
use copy::{
    answer,
    fetch_op,
    fetch_sized, //
};
use core::mem::offset_of;
pub(crate) use cpu_word::CpuWords;
use cpu_word::WordSetter;
use kernel::{
    cpu::nr_cpu_ids,
    ioctl::{
        _IOC_NR,
        _IOC_SIZE,
        _IOC_TYPE, //
    },
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};
pub(crate) use node::{
    NodeFile,
    Shared as NodeShared, //
};
use plan::PlanFile;

const NR_INFO: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_INFO);
const NR_READ: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_READ);
const NR_BATCH: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_BATCH);
const NR_PREPARE: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_PREPARE);
const NR_SET_ALLOW: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_SET_ALLOW);
const NR_GET_ALLOW: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_GET_ALLOW);
const NR_NARROW: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_NARROW);
const NR_REFUSALS: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_REFUSALS);
const NR_SET_CPU_WORD: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_SET_CPU_WORD);
const NR_CLEAR_CPU_WORD: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_CLEAR_CPU_WORD);
const NR_SAMPLER: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_SAMPLER);
const NR_WATCH: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_WATCH);
const NR_STOP: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_STOP);
const NR_RUN: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_RUN);

/// What descriptors and attributes of the device share.
pub(crate) struct Shared {
    /// The engine.
    pub(crate) engine: Arc<Engine>,
    /// The named values.
    pub(crate) cache: Arc<Cache>,
    /// Who may do what.
    pub(crate) policy: Arc<Policy>,
    /// Threads that have their CPU's number in their memory.
    pub(crate) cpu_words: Arc<CpuWords>,
    /// The samplers.
    pub(crate) samplers: Arc<Samplers>,
}

/// An open descriptor of the device.
#[pin_data]
pub(crate) struct DeviceFile {
    engine: Arc<Engine>,
    samplers: Arc<Samplers>,
    access: Access,
    setter: WordSetter,
    #[pin]
    spare: Spare,
}

impl Device for DeviceFile {
    const NAME: &'static CStr = c"cpupeek";
    const MODE: u16 = 0o600;
    const ATTRIBUTES: &'static [Attribute<Self>] = attributes::ALL;
    type Shared = Shared;

    fn open(shared: &Shared) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                engine: shared.engine.clone(),
                samplers: shared.samplers.clone(),
                access: Access::of_current(shared.policy.clone())?,
                setter: WordSetter::new(shared.cpu_words.clone())?,
                spare <- Spare::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

impl Descriptor for DeviceFile {
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        let size = _IOC_SIZE(cmd);
        let number = number(cmd)?;
        // A single read feels every comparison.
        if number == NR_READ {
            return self.read(arg, size);
        }
        match number {
            NR_INFO => self.info(arg, size),
            NR_BATCH => self.batch(arg, size),
            NR_PREPARE => self.prepare(arg, size),
            NR_SET_ALLOW => self.set_allow(arg, size),
            NR_GET_ALLOW => self.get_allow(arg, size),
            NR_NARROW => self.narrow(arg, size),
            NR_REFUSALS => self.refusals(arg, size),
            NR_SET_CPU_WORD => self.set_cpu_word(arg, size),
            NR_CLEAR_CPU_WORD => self.clear_cpu_word(),
            NR_SAMPLER => self.sampler(arg, size),
            _ => Err(ENOTTY),
        }
    }
}

/// The number of a command of ours.
fn number(cmd: u32) -> Result<u32> {
    if _IOC_TYPE(cmd) == uapi::CPUPEEK_IOC_TYPE {
        Ok(_IOC_NR(cmd))
    } else {
        Err(ENOTTY)
    }
}

impl DeviceFile {
    #[inline(never)]
    fn info(&self, arg: UserPtr, size: usize) -> Result {
        let info = Info {
            size: size_of::<Info>() as u32,
            reserved: 0,
            features: uapi::CPUPEEK_CONST_FEATURES | self.setter.features(),
            max_batch_ops: MAX_BATCH_OPS as u32,
            max_round_ops: round::MAX_OPS,
            nr_cpu_ids: nr_cpu_ids(),
            tsc_khz: regs::tsc_khz(),
            tsc_stable: regs::tsc_stable().into(),
            read_timeout_ms: self.engine.read_timeout_ms(),
        };
        let first = offset_of!(Info, read_timeout_ms) + size_of::<u32>();
        answer(arg, size, &info, first)
    }

    fn read(&self, arg: UserPtr, size: usize) -> Result {
        let mut op = pin_init::zeroed();
        fetch_op(arg, size, &mut op)?;
        self.engine.read(&self.access, &self.spare, &mut op)?;
        user_ops::store_answer(arg, &op)
    }

    #[inline(never)]
    fn batch(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::Batch = fetch_sized(arg, size, |header: &uapi::Batch| header.size)?;
        if header.reserved != 0 {
            return Err(EINVAL);
        }
        let (manner, tsc) = waiting(header.flags, header.tsc)?;
        let batch = Batch {
            timeout_ms: header.timeout_ms,
            manner,
            tsc,
            ..operations(header.ops, header.nr_ops, header.op_size)?
        };
        self.engine.stats.add(Counter::Calls, 1);
        self.engine.batch(&self.access, &self.spare, &batch)
    }

    #[inline(never)]
    fn prepare(&self, arg: UserPtr, size: usize) -> Result {
        let mut header: uapi::Prepare =
            fetch_sized(arg, size, |header: &uapi::Prepare| header.size)?;
        if header.flags != 0 || header.reserved != 0 {
            return Err(EINVAL);
        }
        let batch = operations(header.ops, header.nr_ops, header.op_size)?;
        let plan = Plan::new(self.engine.clone(), self.access.for_plan(), &batch)?;
        let state = PlanFile {
            plan,
            samplers: self.samplers.clone(),
        };
        let state = KBox::pin(state, GFP_KERNEL_ACCOUNT)?;
        let file = NewFile::new(c"[cpupeek-plan]", state)?;
        header.fd = file.number();
        UserSlice::new(arg, size_of::<uapi::Prepare>())
            .writer()
            .write(&header)?;
        file.install();
        Ok(())
    }
}

/// Decodes the flags that batches and runs share: how to wait, and where time stamps go.
fn waiting(flags: u32, tsc: u64) -> Result<(Manner, Option<UserPtr>)> {
    let with_tsc = flags & uapi::CPUPEEK_BATCH_TSC_PAIR != 0;
    let manner = match flags & !uapi::CPUPEEK_BATCH_TSC_PAIR {
        0 => Manner::Adaptive,
        uapi::CPUPEEK_BATCH_SLEEP => Manner::Sleep,
        uapi::CPUPEEK_BATCH_SPIN => Manner::Spin,
        _ => return Err(EINVAL),
    };
    if tsc != 0 && !with_tsc {
        return Err(EINVAL);
    }
    Ok((manner, with_tsc.then(|| UserPtr::from_addr(tsc as usize))))
}

const _: () = assert!(
    uapi::CPUPEEK_RUN_SLEEP == uapi::CPUPEEK_BATCH_SLEEP
        && uapi::CPUPEEK_RUN_SPIN == uapi::CPUPEEK_BATCH_SPIN
        && uapi::CPUPEEK_RUN_TSC_PAIR == uapi::CPUPEEK_BATCH_TSC_PAIR
);

/// Checks where operations are: [`EINVAL`] for the distance, [`E2BIG`] for the number.
fn operations(ops: u64, count: u32, stride: u32) -> Result<Batch> {
    let (count, stride) = (count as usize, stride as usize);
    if stride < size_of::<Op>() || stride % align_of::<Op>() != 0 {
        return Err(EINVAL);
    }
    if count > MAX_BATCH_OPS {
        return Err(E2BIG);
    }
    // No overflow: the number is bounded, and the distance has 32 bits.
    let end = ops
        .checked_add(count as u64 * stride as u64)
        .ok_or(EFAULT)?;
    usize::try_from(end)?;
    Ok(Batch {
        ops: UserPtr::from_addr(ops as usize),
        count,
        stride,
        timeout_ms: 0,
        manner: Manner::Adaptive,
        tsc: None,
    })
}
