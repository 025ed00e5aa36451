// SPDX-License-Identifier: GPL-2.0

//! The files of each CPU that read as `/dev/cpu/N/msr` and `/dev/cpu/N/cpuid` do, for programs that
//! know no others (`cpupeek run`). What the position means is in msr(4) and cpuid(4).

use crate::{
    engine::{
        Engine,
        Spare, //
    },
    kapi::{
        cpu_nodes::CpuNode,
        file::Descriptor,
        regs,
        task,
        uapi::Op, //
    },
    policy::{
        Access,
        Policy, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    },
};

/// What the files share.
pub(crate) struct Shared {
    /// The engine.
    pub(crate) engine: Arc<Engine>,
    /// Who may do what.
    pub(crate) policy: Arc<Policy>,
}

/// What a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Msr,
    Cpuid,
}

/// An open file. It has the rights of its opener, as a descriptor of the device has.
#[pin_data]
pub(crate) struct NodeFile {
    engine: Arc<Engine>,
    access: Access,
    cpu: u32,
    kind: Kind,
    #[pin]
    spare: Spare,
}

impl CpuNode for NodeFile {
    const CLASS: &'static CStr = c"cpupeek-cpu";
    const FILES: &'static [&'static CStr] = &[c"msr", c"cpuid"];
    type Shared = Shared;

    fn open(shared: &Shared, cpu: u32, file: usize) -> Result<Pin<KBox<Self>>> {
        if !regs::is_online(cpu) {
            return Err(ENXIO);
        }
        KBox::try_pin_init(
            try_pin_init!(Self {
                engine: shared.engine.clone(),
                access: Access::of_current(shared.policy.clone())?,
                cpu,
                kind: if file == 0 { Kind::Msr } else { Kind::Cpuid },
                spare <- Spare::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn read(&self, position: &mut u64, to: UserSlice) -> Result<usize> {
        let (mut out, unit) = (to.writer(), self.kind.size());
        if out.len() % unit != 0 {
            return Err(EINVAL);
        }
        let mut read = 0usize;
        while !out.is_empty() {
            match self.read_one(*position, &mut out) {
                Ok(()) => read = read.saturating_add(unit),
                // What there is comes before what is wrong.
                Err(_) if read != 0 => break,
                Err(error) => return Err(error),
            }
            // An MSR's position stays: all of the bytes are of one register.
            if self.kind == Kind::Cpuid {
                *position = position.wrapping_add(1);
            }
            task::cond_resched();
        }
        Ok(read)
    }
}

impl NodeFile {
    fn read_one(&self, position: u64, out: &mut UserSliceWriter) -> Result {
        if task::is_being_killed() {
            return Err(EINTR);
        }
        let low = position as u32;
        let mut op = match self.kind {
            Kind::Msr => Op::msr(self.cpu, low),
            Kind::Cpuid => Op::cpuid(self.cpu, low).with_subleaf((position >> 32) as u32),
        };
        self.engine.read(&self.access, &self.spare, &mut op)?;
        let bytes = op.answer_bytes()?;
        out.write_slice(bytes.get(..self.kind.size()).ok_or(EINVAL)?)
    }
}

impl Kind {
    /// Bytes of one reading.
    const fn size(self) -> usize {
        match self {
            Self::Msr => 8,
            Self::Cpuid => 16,
        }
    }
}

impl Descriptor for NodeFile {
    fn ioctl(&self, _cmd: u32, _arg: UserPtr) -> Result {
        Err(ENOTTY)
    }
}
