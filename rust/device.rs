// SPDX-License-Identifier: GPL-2.0

//! The device: open, ioctl, user memory.

use crate::{
    engine::{
        Batch,
        Engine,
        Manner,
        Spare,
        MAX_BATCH_OPS, //
    },
    kapi::{
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
    },
    logic::round,
    policy::Rights,
    stats::Counter, //
};
use kernel::{
    cpu::nr_cpu_ids,
    ioctl::{
        _IOC_NR,
        _IOC_SIZE,
        _IOC_TYPE, //
    },
    prelude::*,
    sync::Arc,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceReader, //
    },
};

const NR_INFO: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_INFO);
const NR_READ: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_READ);
const NR_BATCH: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_BATCH);

/// An open descriptor of the device.
#[pin_data]
pub(crate) struct Descriptor {
    engine: Arc<Engine>,
    rights: Rights,
    #[pin]
    spare: Spare,
}

macro_rules! counters {
    ($($name:literal => $counter:ident,)*) => {
        &[
            $(Attribute::ro($name, |engine: &Arc<Engine>| engine.stats.get(Counter::$counter)),)*
            Attribute::rw(
                c"read_timeout_ms",
                |engine: &Arc<Engine>| engine.read_timeout_ms().into(),
                |engine: &Arc<Engine>, ms| engine.set_read_timeout_ms(ms),
            ),
            Attribute::rw(
                c"spin_min_us",
                |engine: &Arc<Engine>| engine.spin_us().0.into(),
                |engine: &Arc<Engine>, us| engine.set_spin_min_us(us),
            ),
            Attribute::rw(
                c"spin_max_us",
                |engine: &Arc<Engine>| engine.spin_us().1.into(),
                |engine: &Arc<Engine>, us| engine.set_spin_max_us(us),
            ),
        ]
    };
}

impl Device for Descriptor {
    const NAME: &'static CStr = c"cpupeek";
    const MODE: u16 = 0o600;
    const ATTRIBUTES: &'static [Attribute<Self>] = counters! {
        c"calls" => Calls,
        c"ops" => Ops,
        c"interrupts" => Interrupts,
        c"local_ops" => LocalOps,
        c"rounds" => Rounds,
        c"sleeps" => Sleeps,
        c"spins" => Spins,
        c"preempted" => Preempted,
        c"timeouts" => Timeouts,
        c"losses" => Losses,
        c"allocations" => Allocations,
        c"abandoned" => Abandoned,
    };
    type Shared = Arc<Engine>;

    fn open(engine: &Arc<Engine>) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                engine: engine.clone(),
                rights: Rights::of_current(),
                spare <- Spare::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        if _IOC_TYPE(cmd) != uapi::CPUPEEK_IOC_TYPE {
            return Err(ENOTTY);
        }
        let size = _IOC_SIZE(cmd);
        match _IOC_NR(cmd) {
            NR_INFO => self.info(arg, size),
            NR_READ => self.read(arg, size),
            NR_BATCH => self.batch(arg, size),
            _ => Err(ENOTTY),
        }
    }
}

impl Descriptor {
    fn info(&self, arg: UserPtr, size: usize) -> Result {
        let info = Info {
            size: size_of::<Info>() as u32,
            reserved: 0,
            features: uapi::CPUPEEK_CONST_FEATURES,
            max_batch_ops: MAX_BATCH_OPS as u32,
            max_round_ops: round::MAX_OPS,
            nr_cpu_ids: nr_cpu_ids(),
            tsc_khz: regs::tsc_khz(),
            tsc_stable: regs::tsc_stable().into(),
            read_timeout_ms: self.engine.read_timeout_ms(),
        };
        answer(arg, size, &info)
    }

    fn read(&self, arg: UserPtr, size: usize) -> Result {
        let mut op: Op = fetch(arg, size)?;
        self.engine.stats.add(Counter::Calls, 1);
        self.engine.stats.add(Counter::Ops, 1);
        match self.rights.check(&op) {
            Ok(()) => self.engine.read(&self.spare, &mut op)?,
            Err(error) => op.refuse(error),
        }
        // What is after a longer structure's known part was zero, and has no answer in it.
        UserSlice::new(arg, size_of::<Op>()).writer().write(&op)
    }

    fn batch(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::Batch = fetch(arg, size)?;
        if (header.size as usize) < size_of::<uapi::Batch>() {
            return Err(EINVAL);
        }
        check_rest(
            arg,
            header.size as usize,
            size_of::<uapi::Batch>().max(size),
        )?;

        let known =
            uapi::CPUPEEK_BATCH_SLEEP | uapi::CPUPEEK_BATCH_SPIN | uapi::CPUPEEK_BATCH_TSC_PAIR;
        let waiting = uapi::CPUPEEK_BATCH_SLEEP | uapi::CPUPEEK_BATCH_SPIN;
        let with_tsc = header.flags & uapi::CPUPEEK_BATCH_TSC_PAIR != 0;
        let stride = header.op_size as usize;
        if header.flags & !known != 0
            || header.flags & waiting == waiting
            || header.reserved != 0
            || stride < size_of::<Op>()
            || stride % align_of::<Op>() != 0
            || (header.tsc != 0 && !with_tsc)
        {
            return Err(EINVAL);
        }
        let count = header.nr_ops as usize;
        if count > MAX_BATCH_OPS {
            return Err(E2BIG);
        }
        let end = (count as u64).checked_mul(stride as u64).ok_or(E2BIG)?;
        header.ops.checked_add(end).ok_or(EFAULT)?;

        self.engine.stats.add(Counter::Calls, 1);
        self.engine.batch(
            self.rights,
            &self.spare,
            &Batch {
                ops: UserPtr::from_addr(header.ops as usize),
                count,
                stride,
                timeout_ms: header.timeout_ms,
                manner: match header.flags & waiting {
                    uapi::CPUPEEK_BATCH_SLEEP => Manner::Sleep,
                    uapi::CPUPEEK_BATCH_SPIN => Manner::Spin,
                    _ => Manner::Adaptive,
                },
                tsc: with_tsc.then(|| UserPtr::from_addr(header.tsc as usize)),
            },
        )
    }
}

/// Copies in a structure that the caller knows with `size` bytes. See "General ioctl format" in the
/// UAPI header.
fn fetch<T: FromBytes>(arg: UserPtr, size: usize) -> Result<T> {
    if size < size_of::<T>() {
        return Err(EINVAL);
    }
    let mut reader = UserSlice::new(arg, size).reader();
    let value = reader.read()?;
    expect_zero(&mut reader)?;
    Ok(value)
}

/// Checks that what a caller's structure of `size` bytes holds from `known` on is zero.
fn check_rest(arg: UserPtr, size: usize, known: usize) -> Result {
    if size <= known {
        return Ok(());
    }
    if size > kernel::page::PAGE_SIZE {
        return Err(E2BIG);
    }
    let rest = UserSlice::new(arg.wrapping_byte_add(known), size - known);
    expect_zero(&mut rest.reader())
}

fn expect_zero(reader: &mut UserSliceReader) -> Result {
    while !reader.is_empty() {
        let mut bytes = [0u8; 64];
        let bytes = &mut bytes[..reader.len().min(64)];
        reader.read_slice(bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Err(E2BIG);
        }
    }
    Ok(())
}

/// Copies out a structure to a caller who knows it with `size` bytes, and zeroes what is left.
fn answer<T: AsBytes>(arg: UserPtr, size: usize, value: &T) -> Result {
    // A caller must at least see the structure's size.
    if size < size_of::<u64>() {
        return Err(EINVAL);
    }
    let bytes = value.as_bytes();
    let known = bytes.get(..size).unwrap_or(bytes);
    let mut writer = UserSlice::new(arg, size).writer();
    writer.write_slice(known)?;
    while !writer.is_empty() {
        let zeroes = [0u8; 64];
        writer.write_slice(&zeroes[..writer.len().min(64)])?;
    }
    Ok(())
}
