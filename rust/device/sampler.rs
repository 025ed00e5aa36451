// SPDX-License-Identifier: GPL-2.0

//! Making samplers, and commands on them.

use super::{
    copy::fetch_sized,
    number,
    operations,
    plan::PlanFile,
    policy::fetch_narrowing,
    DeviceFile,
    NR_NARROW,
    NR_STOP,
    NR_WATCH, //
};
use crate::{
    engine::Engine,
    kapi::{
        cpu_timer::Precision,
        events::Events,
        file::{
            Descriptor,
            NewFile, //
        },
        uapi::{
            self,
            Op,
            SamplerRequest,
            CPU_ANY, //
        },
    },
    logic::sampling::watch::{
        Condition,
        Kind, //
    },
    policy::Access,
    sampler::{
        Request,
        Sampler,
        Samplers, //
    },
};
use kernel::{
    ioctl::_IOC_SIZE,
    mm::virt::VmaNew,
    prelude::*,
    sync::Arc,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Most conditions in one command.
const MAX_CONDITIONS: usize = 65_536;

/// The state of a sampler's descriptor: the sampler runs as long as this lives.
struct SamplerFile(Arc<Sampler>);

impl Drop for SamplerFile {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn fetch_request(arg: UserPtr, size: usize) -> Result<SamplerRequest> {
    let header: SamplerRequest = fetch_sized(arg, size, |header: &SamplerRequest| header.size)?;
    if header.flags & !uapi::CPUPEEK_SAMPLER_EXACT != 0 {
        return Err(EINVAL);
    }
    Ok(header)
}

/// Makes a sampler, its file, and the answer.
#[inline(never)]
fn make(
    arg: UserPtr,
    mut header: SamplerRequest,
    engine: &Arc<Engine>,
    samplers: &Arc<Samplers>,
    access: Access,
    ops: &mut [Op],
) -> Result {
    let exact = header.flags & uapi::CPUPEEK_SAMPLER_EXACT != 0;
    let request = Request {
        precision: if exact {
            Precision::Exact
        } else {
            Precision::Deferrable
        },
        interval_ns: header.interval_ns,
        ring_samples: header.ring_samples,
    };
    let sampler = Sampler::new(engine.clone(), samplers.clone(), access, request, ops)?;
    header.interval_ns = sampler.interval_ns();
    header.map_size = sampler.map_size() as u64;
    let guard = SamplerFile(sampler);
    let state = KBox::pin(guard, GFP_KERNEL_ACCOUNT)?;
    let file = NewFile::new(c"[cpupeek-sampler]", state)?;
    header.fd = file.number();
    UserSlice::new(arg, size_of::<SamplerRequest>())
        .writer()
        .write(&header)?;
    file.install();
    Ok(())
}

impl DeviceFile {
    #[inline(never)]
    pub(super) fn sampler(&self, arg: UserPtr, size: usize) -> Result {
        let header = fetch_request(arg, size)?;
        let batch = operations(header.ops, header.nr_ops, header.op_size)?;
        let empty: Op = pin_init::zeroed();
        let mut ops = KVVec::from_elem(empty, batch.count, GFP_KERNEL_ACCOUNT)?;
        batch.fetch(&mut ops)?;
        let access = self.access.for_plan();
        make(arg, header, &self.engine, &self.samplers, access, &mut ops)
    }
}

impl PlanFile {
    /// Makes a sampler of the plan's operations.
    #[inline(never)]
    pub(super) fn sampler(&self, arg: UserPtr, size: usize) -> Result {
        let header = fetch_request(arg, size)?;
        if header.nr_ops != 0 || header.op_size != 0 || header.ops != 0 {
            return Err(EINVAL);
        }
        let (ops, engine, access) = self.plan.parts();
        let mut copy = KVVec::new();
        copy.extend_from_slice(ops, GFP_KERNEL_ACCOUNT)?;
        make(
            arg,
            header,
            engine,
            &self.samplers,
            access.for_plan(),
            &mut copy,
        )
    }
}

impl Descriptor for SamplerFile {
    const HAS_EVENTS: bool = true;

    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        let size = _IOC_SIZE(cmd);
        match number(cmd)? {
            NR_WATCH => self.watch(arg, size),
            NR_NARROW => self.0.narrow(fetch_narrowing(arg, size)?),
            // It has no argument, and so no meaning for one.
            NR_STOP if arg.as_const_ptr().addr() != 0 => Err(EINVAL),
            NR_STOP => {
                self.0.stop();
                Ok(())
            }
            _ => Err(ENOTTY),
        }
    }

    fn events(&self) -> Option<&Events> {
        Some(self.0.events())
    }

    fn mmap(&self, vma: &VmaNew) -> Result {
        self.0.map(vma)
    }
}

impl SamplerFile {
    #[inline(never)]
    fn watch(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::Watch = fetch_sized(arg, size, |header: &uapi::Watch| header.size)?;
        let count = header.nr_conditions as usize;
        let is_misplaced = count == 0 && header.conditions != 0;
        if header.flags != 0 || header.reserved != 0 || is_misplaced {
            return Err(EINVAL);
        }
        if count > MAX_CONDITIONS {
            return Err(E2BIG);
        }
        let empty: uapi::Condition = pin_init::zeroed();
        let mut raw = KVVec::from_elem(empty, count, GFP_KERNEL_ACCOUNT)?;
        let bytes = AsBytes::as_bytes_mut(&mut *raw);
        UserSlice::new(UserPtr::from_addr(header.conditions as usize), bytes.len())
            .reader()
            .read_slice(bytes)?;
        let mut conditions = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for condition in &raw {
            conditions.push(decode(condition)?, GFP_KERNEL_ACCOUNT)?;
        }
        self.0.watch(&conditions)
    }
}

/// [`EINVAL`] for a malformed one.
fn decode(raw: &uapi::Condition) -> Result<(Option<u32>, Condition)> {
    let kind = match (raw.kind, raw.bound) {
        (uapi::CPUPEEK_WHEN_CHANGED, 0) => Kind::Changed,
        (uapi::CPUPEEK_WHEN_CROSSED, bound) => Kind::Crossed { bound },
        _ => return Err(EINVAL),
    };
    if raw.reserved != 0 || raw.mask == 0 {
        return Err(EINVAL);
    }
    let cpu = (raw.cpu != CPU_ANY).then_some(raw.cpu);
    Ok((cpu, Condition::new(raw.result, kind, raw.mask)))
}
