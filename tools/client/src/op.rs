// SPDX-License-Identifier: GPL-2.0

//! Operations: what to read, and the answer.

use crate::error::OpError;
use crate::uapi;
use core::fmt;

/// The status of an operation that the module has not answered yet. The module
/// returns errno values, so this is none of its answers, and above all not 0.
const NOT_READ: i32 = i32::MIN;

/// The CPU that an operation asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cpu {
    /// The CPU of this number. No machine has a CPU `u32::MAX`: it is
    /// [`OpError::Absent`], as others that are not there.
    Number(u32),
    /// The CPU that the caller happens to be on; [`Reading::cpu`] says which it
    /// was.
    Current,
}

impl Cpu {
    const fn to_raw(self) -> u32 {
        match self {
            Cpu::Number(number) => Self::number(number),
            Cpu::Current => uapi::CPUPEEK_CONST_CPU_SELF,
        }
    }

    /// The number as the ABI has it, where the highest stands for the caller's CPU, or for any: that is
    /// made another one that no machine has, so that the module says so.
    pub(crate) const fn number(number: u32) -> u32 {
        match number {
            u32::MAX => u32::MAX - 1,
            number => number,
        }
    }

    const fn from_raw(raw: u32) -> Self {
        match raw {
            uapi::CPUPEEK_CONST_CPU_SELF => Cpu::Current,
            number => Cpu::Number(number),
        }
    }
}

impl From<u32> for Cpu {
    /// The CPU of this number, whatever it is: none of them stands for
    /// [`Cpu::Current`].
    fn from(number: u32) -> Self {
        Cpu::Number(number)
    }
}

/// What an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Register {
    /// A model-specific register, by number.
    Msr(u32),
    /// A CPUID leaf.
    Cpuid {
        /// The leaf: EAX on the way in.
        leaf: u32,
        /// The subleaf: ECX on the way in.
        subleaf: u32,
    },
}

/// The four registers that CPUID answers with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Their names say all there is to say.
pub struct CpuidRegs {
    pub eax: u32,
    pub ebx: u32,
    pub ecx: u32,
    pub edx: u32,
}

/// The value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Of a model-specific register.
    Msr(u64),
    /// Of a CPUID leaf.
    Cpuid(CpuidRegs),
}

/// The answer to an operation that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// The CPU that answered.
    pub cpu: u32,
    /// That CPU's time stamp counter, immediately before the register was read.
    pub tsc: u64,
    /// The register's value.
    pub value: Value,
}

/// One register of one CPU to read, and afterwards its value.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Op(uapi::cpupeek_op);

impl Op {
    /// Reads the model-specific register `reg` of `cpu`.
    pub fn msr(cpu: impl Into<Cpu>, reg: u32) -> Self {
        Self::new(cpu.into(), Register::Msr(reg))
    }

    /// Executes CPUID with `leaf` in EAX and `subleaf` in ECX on `cpu`.
    pub fn cpuid(cpu: impl Into<Cpu>, leaf: u32, subleaf: u32) -> Self {
        Self::new(cpu.into(), Register::Cpuid { leaf, subleaf })
    }

    /// Reads `register` of `cpu`.
    pub fn new(cpu: Cpu, register: Register) -> Self {
        let (kind, reg, subleaf) = match register {
            Register::Msr(reg) => (uapi::CPUPEEK_MSR, reg, 0),
            Register::Cpuid { leaf, subleaf } => (uapi::CPUPEEK_CPUID, leaf, subleaf),
        };
        Op(uapi::cpupeek_op {
            cpu: cpu.to_raw(),
            kind: kind as u16,
            reg,
            subleaf,
            status: NOT_READ,
            ..Default::default()
        })
    }

    /// The same, allowed to interrupt an isolated CPU; the module wants
    /// CAP_SYS_NICE for that.
    #[must_use]
    pub const fn disturb(mut self) -> Self {
        self.0.flags |= uapi::CPUPEEK_OP_DISTURB as u16;
        self
    }

    /// The CPU that is asked; once [`Cpu::Current`] has answered, the CPU that
    /// it was.
    pub const fn cpu(&self) -> Cpu {
        Cpu::from_raw(self.0.cpu)
    }

    /// What is read.
    pub const fn register(&self) -> Register {
        if self.is_msr() {
            Register::Msr(self.0.reg)
        } else {
            Register::Cpuid {
                leaf: self.0.reg,
                subleaf: self.0.subleaf,
            }
        }
    }

    /// The answer. [`OpError::NotRead`] if there is none yet.
    pub fn result(&self) -> Result<Reading, OpError> {
        if self.0.status != 0 {
            return Err(match self.0.status {
                NOT_READ => OpError::NotRead,
                status => OpError::from_errno(status.checked_neg().unwrap_or(status)),
            });
        }
        Ok(Reading {
            cpu: self.0.cpu,
            tsc: self.0.tsc,
            value: self.value(),
        })
    }

    /// The structure as the ABI has it.
    pub const fn as_raw(&self) -> &uapi::cpupeek_op {
        &self.0
    }

    pub(crate) fn as_raw_mut(&mut self) -> &mut uapi::cpupeek_op {
        &mut self.0
    }

    /// Forgets an earlier answer, so that a call that fails on the way cannot
    /// leave it standing as a new one.
    pub(crate) fn forget_answer(&mut self) {
        self.0.status = NOT_READ;
    }

    /// Answers the operation as the module does when time is up.
    pub(crate) fn time_out(&mut self) {
        self.0.status = OpError::Timeout.errno().checked_neg().unwrap_or(NOT_READ);
    }

    /// Takes the answer to this operation from a run of a plan.
    pub(crate) fn take_answer(&mut self, result: &uapi::cpupeek_result) {
        // SAFETY: The results are initialised as a whole before the module
        // writes to them, and any bits are a value of this member.
        let regs = unsafe { result.__bindgen_anon_1.__bindgen_anon_1 };
        self.0.status = result.status;
        self.0.tsc = result.tsc;
        self.0.__bindgen_anon_1.__bindgen_anon_1 = uapi::cpupeek_op__bindgen_ty_1__bindgen_ty_1 {
            eax: regs.eax,
            ebx: regs.ebx,
            ecx: regs.ecx,
            edx: regs.edx,
        };
    }

    const fn is_msr(&self) -> bool {
        self.0.kind == uapi::CPUPEEK_MSR as u16
    }

    fn value(&self) -> Value {
        let answer = self.0.__bindgen_anon_1;
        if self.is_msr() {
            // SAFETY: The union was initialised as a whole, and any bits are a
            // value of either member.
            Value::Msr(unsafe { answer.value })
        } else {
            // SAFETY: As above.
            let regs = unsafe { answer.__bindgen_anon_1 };
            Value::Cpuid(CpuidRegs {
                eax: regs.eax,
                ebx: regs.ebx,
                ecx: regs.ecx,
                edx: regs.edx,
            })
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op")
            .field("cpu", &self.cpu())
            .field("register", &self.register())
            .field("flags", &self.0.flags)
            .field("result", &self.result())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(mut op: Op, status: i32, answer: uapi::cpupeek_op__bindgen_ty_1) -> Op {
        op.0.status = status;
        op.0.tsc = 77;
        op.0.__bindgen_anon_1 = answer;
        op
    }

    #[test]
    fn a_new_op_has_exactly_what_was_asked_for() {
        let raw = *Op::msr(3, 0xc000_0103).as_raw();
        assert_eq!((raw.cpu, raw.kind, raw.flags), (3, 1, 0));
        assert_eq!((raw.reg, raw.subleaf, raw.reserved), (0xc000_0103, 0, 0));

        let raw = *Op::cpuid(Cpu::Current, 4, 2).disturb().as_raw();
        assert_eq!((raw.cpu, raw.kind, raw.flags), (u32::MAX, 2, 1));
        assert_eq!((raw.reg, raw.subleaf, raw.reserved), (4, 2, 0));
    }

    #[test]
    fn no_number_is_the_callers_cpu() {
        for op in [
            Op::msr(u32::MAX, 0x10),
            Op::cpuid(Cpu::Number(u32::MAX), 0, 0),
        ] {
            assert_eq!(op.as_raw().cpu, u32::MAX - 1);
            assert_ne!(op.cpu(), Cpu::Current);
        }
        assert_eq!(Op::msr(Cpu::Current, 0x10).cpu(), Cpu::Current);
    }

    #[test]
    fn a_new_op_is_no_answer() {
        assert_eq!(Op::msr(0, 0x10).result(), Err(OpError::NotRead));
    }

    #[test]
    fn an_answer_is_forgotten() {
        let value = uapi::cpupeek_op__bindgen_ty_1 { value: 1 };
        let mut op = answered(Op::msr(0, 0x10), 0, value);
        assert!(op.result().is_ok());
        op.forget_answer();
        assert_eq!(op.result(), Err(OpError::NotRead));
    }

    #[test]
    fn values_come_from_the_right_member() {
        let answer = uapi::cpupeek_op__bindgen_ty_1 {
            __bindgen_anon_1: uapi::cpupeek_op__bindgen_ty_1__bindgen_ty_1 {
                eax: 0x11,
                ebx: 0x22,
                ecx: 0x33,
                edx: 0x44,
            },
        };
        assert_eq!(
            answered(Op::msr(5, 0x10), 0, answer).result(),
            Ok(Reading {
                cpu: 5,
                tsc: 77,
                value: Value::Msr(0x22_0000_0011)
            })
        );
        assert_eq!(
            answered(Op::cpuid(5, 0, 0), 0, answer).result(),
            Ok(Reading {
                cpu: 5,
                tsc: 77,
                value: Value::Cpuid(CpuidRegs {
                    eax: 0x11,
                    ebx: 0x22,
                    ecx: 0x33,
                    edx: 0x44
                })
            })
        );
    }

    #[test]
    fn every_status_but_zero_is_an_error() {
        let none = uapi::cpupeek_op__bindgen_ty_1 { value: 0 };
        for (status, error) in [
            (-5, OpError::Hardware),
            (-6, OpError::Absent),
            (5, OpError::Other(-5)),
            (-4000, OpError::Other(4000)),
            (i32::MAX, OpError::Other(-i32::MAX)),
            (i32::MIN, OpError::NotRead),
        ] {
            assert_eq!(
                answered(Op::msr(0, 0x10), status, none).result(),
                Err(error)
            );
        }
    }

    #[test]
    fn answers_of_plans_are_taken() {
        let mut result = uapi::cpupeek_result {
            status: 0,
            cpu: 5,
            tsc: 77,
            ..Default::default()
        };
        result.__bindgen_anon_1.value = 0x22_0000_0011;
        let reading = Reading {
            cpu: 5,
            tsc: 77,
            value: Value::Msr(0x22_0000_0011),
        };
        let mut op = Op::msr(5, 0x10);
        op.take_answer(&result);
        assert_eq!(op.result(), Ok(reading));

        result.status = -6;
        op.take_answer(&result);
        assert_eq!(op.result(), Err(OpError::Absent));
    }

    #[test]
    fn time_outs_are_the_modules() {
        let mut op = Op::msr(0, 0x10);
        op.time_out();
        assert_eq!(op.as_raw().status, -62);
        assert_eq!(op.result(), Err(OpError::Timeout));
    }
}
