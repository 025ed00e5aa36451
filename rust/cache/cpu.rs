// SPDX-License-Identifier: GPL-2.0

//! One CPU's named values: which it has, their snapshot, and samples of its frequency.

mod window;

use super::{
    energy,
    shared_by,
    sweep::Need,
    Values, //
};
use crate::{
    engine::{
        Caller,
        Group,
        Manner,
        ReadRegister, //
    },
    kapi::{
        errno::{
            enodata,
            etime, //
        },
        regs,
        task,
        uapi::Op, //
    },
    logic::{
        catalogue::{
            Class,
            Decode,
            Entry,
            Identity,
            Number,
            Source,
            APERF,
            ENTRIES,
            MPERF, //
        },
        energy::Unit,
        frequency::{
            Rate,
            Sample, //
        },
        freshness::Freshness,
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
pub(super) use window::WINDOW_TRIES;

/// How many earlier samples are kept, to find one that is a suitable window ago.
const SAMPLES: usize = 4;

/// A value that the CPU has.
struct Live {
    entry: &'static Entry,
    decode: Decode,
    reg: u32,
    /// What the constant register holds, if decoding needs it.
    constant: u64,
    energy: Option<(energy::Id, Unit)>,
}

/// A CPU's values.
pub(super) struct CpuState {
    cpu: u32,
    live: KVec<Live>,
    /// The registers that they need, and the last answers; APERF and MPERF are at the end.
    ops: KVec<Op>,
    has_perf: bool,
    /// Memory for the next refresh.
    group: Option<Group>,
    snapshot: Freshness,
    /// This CPU's TSC then, or why there is none.
    tsc: Result<u64>,
    /// From the latest to the earliest.
    samples: KVec<Sample>,
    /// There is no suitable window before the latest sample yet.
    window_missing: bool,
    /// The snapshot that was waited for a window for, without success: not again until it is stale.
    waited_for: u64,
    /// The snapshot that was the latest when a call to all CPUs began.
    swept: Option<u64>,
    permille: Option<u64>,
    /// What the CPU ran at when it last ran long enough to tell.
    rate: Option<Rate>,
}

/// Reads a register of this CPU, for probing.
fn probe(reg: u32) -> Option<u64> {
    regs::rdmsr(reg).ok()
}

impl Live {
    /// Whether the CPU that this runs on has the value, where it is at `source`.
    #[inline(never)]
    fn probe(
        entry: &'static Entry,
        source: &'static Source,
        identity: Identity,
        cpu: u32,
    ) -> Option<Self> {
        let mut live = Self {
            entry,
            decode: source.decode,
            reg: source.reg,
            constant: 0,
            energy: None,
        };
        if source.decode == Decode::Tsc {
            return Some(live);
        }
        let value = probe(source.reg)?;
        if let Some(reg) = source.constant {
            live.constant = probe(reg).filter(|&constant| constant != 0)?;
        }
        match source.decode {
            Decode::Energy => {
                let unit = Unit::from_register(live.constant)?;
                if identity.counts_energy_otherwise() {
                    return None;
                }
                let unit = match source.fixed_unit(identity) {
                    Some(exponent) => Unit::from_exponent(exponent),
                    None => unit,
                };
                let shared_by = shared_by(cpu, source.scope.unwrap_or(entry.scope));
                let reg = source.reg;
                live.energy = Some((energy::Id { reg, shared_by }, unit));
            }
            Decode::Frequency | Decode::FrequencyError | Decode::Residency => {
                probe(APERF)?;
                probe(MPERF)?;
            }
            Decode::VcpuPreempted | Decode::StealTime => {
                let is_told = source.decode == Decode::StealTime || regs::tells_vcpu_preempted();
                if value & 1 == 0 || !is_told {
                    return None;
                }
            }
            Decode::Temperature if live.constant >> 16 & 0xff == 0 => return None,
            decode => {
                let number = decode.number(value, live.constant);
                if entry.nonzero && matches!(number, None | Some(Number::Unsigned(0))) {
                    return None;
                }
            }
        }
        Some(live)
    }
}

impl CpuState {
    /// Finds out what the CPU that this runs on has.
    #[inline(never)]
    pub(super) fn probe(cpu: u32) -> Result<KBox<Self>> {
        let mut cpuid = |leaf| regs::cpuid(leaf, 0);
        let identity = Identity::new(&mut cpuid);
        let mut live = KVec::new();
        let mut ops: KVec<Op> = KVec::new();
        let mut has_perf = false;
        for entry in ENTRIES {
            let source = entry.source(identity, &mut cpuid);
            let found = source.and_then(|source| Live::probe(entry, source, identity, cpu));
            let Some(found) = found else {
                continue;
            };
            if found.reg == APERF || found.reg == MPERF {
                has_perf = true;
            } else if found.decode != Decode::Tsc
                && found.entry.class != Class::Live
                && !ops.iter().any(|op| op.reg == found.reg)
            {
                ops.push(Op::msr(cpu, found.reg), GFP_KERNEL)?;
            }
            live.push(found, GFP_KERNEL)?;
        }
        if has_perf {
            ops.push(Op::msr(cpu, APERF), GFP_KERNEL)?;
            // What is between the two is an error of the frequency: not another round.
            let mut mperf = Op::msr(cpu, MPERF);
            ReadRegister::join(&mut mperf);
            ops.push(mperf, GFP_KERNEL)?;
        }
        if ops.is_empty() {
            // The TSC needs an operation to be read with; any register will do that every CPU has.
            ops.push(Op::cpuid(cpu, 0), GFP_KERNEL)?;
        }
        let state = Self {
            cpu,
            live,
            ops,
            has_perf,
            group: None,
            snapshot: Freshness::new(),
            tsc: Err(enodata()),
            samples: KVec::from_elem(Sample::default(), SAMPLES, GFP_KERNEL)?,
            window_missing: true,
            waited_for: 0,
            swept: None,
            permille: None,
            rate: None,
        };
        Ok(KBox::new(state, GFP_KERNEL)?)
    }

    /// The values that the CPU has.
    pub(super) fn entries(&self) -> impl Iterator<Item = &'static Entry> + '_ {
        self.live.iter().map(|live| live.entry)
    }

    /// Milliseconds since the snapshot, if there is one.
    pub(super) fn age_ms(&self) -> Option<u64> {
        self.snapshot.age_ms(task::now_ms())
    }

    /// The snapshot's number, from 1 on; 0 if there is none.
    pub(super) fn generation(&self) -> u64 {
        self.snapshot.generation()
    }

    /// How soon a value has to be counted along, if it is one that has to.
    pub(super) fn tick_ms(&self, index: usize) -> Option<u64> {
        let (_, unit) = self.live.get(index)?.energy?;
        Some(energy::tick_ms(unit))
    }

    /// A value, not older than the cache allows. [`ENODATA`] if there is none now.
    pub(super) fn value(&mut self, values: &Values, index: usize) -> Result<Number> {
        let live = self.live.get(index).ok_or(ENODEV)?;
        let (decode, reg, constant) = (live.decode, live.reg, live.constant);
        if let Some((id, unit)) = live.energy {
            return self.energy(values, id, unit);
        }
        let class = live.entry.class;
        if class == Class::Live {
            return self.live(decode);
        }
        self.freshen(values)?;
        if class == Class::Window {
            self.widen(values)?;
            // What it was some time ago is not what it is.
            if self.window_missing {
                return Err(enodata());
            }
        }
        match decode {
            Decode::Tsc => Ok(Number::Unsigned(self.tsc?)),
            Decode::Residency => Ok(Number::Unsigned(self.permille.ok_or_else(enodata)?)),
            Decode::Frequency => Ok(Number::Unsigned(self.rate.ok_or_else(enodata)?.khz)),
            Decode::FrequencyError => {
                Ok(Number::Unsigned(self.rate.ok_or_else(enodata)?.error_ppm))
            }
            _ => {
                let op = self
                    .ops
                    .iter()
                    .find(|op| op.reg == reg)
                    .ok_or_else(enodata)?;
                decode.number(op.value()?, constant).ok_or_else(enodata)
            }
        }
    }

    /// What is known at once.
    fn live(&self, decode: Decode) -> Result<Number> {
        match decode {
            Decode::VcpuPreempted => Ok(u64::from(regs::is_vcpu_preempted(self.cpu))),
            Decode::StealTime => Ok(regs::steal_ns(self.cpu) / 1000),
            _ => Err(enodata()),
        }
        .map(Number::Unsigned)
    }

    /// Takes a snapshot if the last one is too old.
    fn freshen(&mut self, values: &Values) -> Result {
        if !self.snapshot.is_stale(task::now_ms(), values.max_age_ms()) {
            return Ok(());
        }
        // An old value of an isolated CPU is better than an interrupt.
        if self.snapshot.is_there() && !values.may_refresh(self.cpu) {
            return Ok(());
        }
        self.refresh(values)
    }

    /// Takes a snapshot. That the CPU did not answer is one too. [`ENODATA`] if the CPU is isolated.
    fn refresh(&mut self, values: &Values) -> Result {
        if !values.may_refresh(self.cpu) {
            return Err(enodata());
        }
        let span = values.engine.read_slice(
            self.cpu,
            &mut self.group,
            &mut self.ops,
            Caller {
                user: None,
                manner: Manner::Adaptive,
                is_patient: false,
            },
        )?;
        self.take_in(values, span);
        Ok(())
    }

    /// Takes in what has been read, and when it was, if the CPU has answered.
    fn take_in(&mut self, values: &Values, span: Option<(u64, u64)>) {
        let now = task::now_ms();
        self.snapshot.renew(now);
        values.engine.stats.add(Counter::Refreshes, 1);
        match (span, self.ops.first()) {
            (Some((first, end)), _) => {
                self.tsc = Ok(first);
                self.sample(values, end);
            }
            (None, op) => {
                self.tsc = op.map_or(Err(enodata()), |op| op.value().map(|_| op.tsc));
                // Without an answer there is no window, and none to wait for.
                self.window_missing = true;
                self.give_up_window();
            }
        }
        let mut energy = values.energy.lock();
        for (id, _) in self.live.iter().filter_map(|live| live.energy) {
            if let Some(counter) = self.counter(id) {
                energy.update(id, counter, now);
            }
        }
    }

    /// The registers that a snapshot has.
    pub(super) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether a call to all CPUs is to have a snapshot of this one.
    pub(super) fn needs(&self, values: &Values, need: Need) -> bool {
        let wanted = match need {
            Need::Fresh => self
                .snapshot
                .is_stale(task::now_ms(), values.sweep_age_ms()),
            Need::Window => {
                self.has_perf
                    && self.snapshot.is_there()
                    && self.window_missing
                    && self.waited_for != self.snapshot.generation()
            }
        };
        wanted && values.may_refresh(self.cpu)
    }

    /// The registers have gone into a call to all CPUs.
    pub(super) fn await_sweep(&mut self) {
        self.swept = Some(self.snapshot.generation());
    }

    /// Takes in the answers of a call to all CPUs, or that there are none, unless there is a later
    /// snapshot, or the CPU was away in between. Returns whether it has.
    pub(super) fn take_sweep(
        &mut self,
        values: &Values,
        ops: &[Op],
        span: Option<(u64, u64)>,
    ) -> bool {
        if self.swept.take() != Some(self.snapshot.generation()) {
            return false;
        }
        match span {
            Some(_) if ops.len() != self.ops.len() => return false,
            Some(_) => {
                for (op, answer) in self.ops.iter_mut().zip(ops) {
                    op.take_answer(answer);
                }
            }
            // Not even those that have been read: a snapshot is of one moment.
            None => {
                for op in &mut self.ops {
                    op.refuse(etime());
                }
            }
        }
        self.take_in(values, span);
        true
    }

    /// What an energy counter was in the snapshot, if it could be read.
    fn counter(&self, id: energy::Id) -> Option<u32> {
        let op = self.ops.iter().find(|op| op.reg == id.reg)?;
        Some(op.value().ok()? as u32)
    }

    /// The energy of a counter that this CPU can read.
    fn energy(&mut self, values: &Values, id: energy::Id, unit: Unit) -> Result<Number> {
        let now = task::now_ms();
        let hold = values.energy_hold_s.load(Relaxed).saturating_mul(1000);
        // What was just wanted is counted once in any case.
        let until = now.saturating_add(hold.max(values.max_age_ms()));
        let max_age = values.max_age_ms();
        let fresh = values.energy.lock().want(id, unit, now, until, max_age)?;
        if !fresh {
            // What nobody has wanted before counts from where a young snapshot has it.
            let young = !self.snapshot.is_stale(now, max_age) && values.energy.lock().is_new(id);
            if !young {
                self.refresh(values)?;
            }
            let counter = self.counter(id).ok_or_else(enodata)?;
            if let (true, Some(age)) = (young, self.age_ms()) {
                let then = now.saturating_sub(age);
                values.energy.lock().update(id, counter, then);
            }
        }
        let energy = values.energy.lock().take(id).ok_or_else(enodata)?;
        Ok(Number::Unsigned(energy))
    }

    /// Reads the counters that are due, if this CPU has such.
    pub(super) fn count_along(&mut self, values: &Values, now_ms: u64) {
        let mut ids = self.live.iter().filter_map(|live| live.energy);
        let due = ids.any(|(id, _)| values.energy.lock().is_due(id, now_ms));
        if due {
            // Without memory the counter is read next time, or its energy has been missed.
            let _ = self.refresh(values);
        }
    }
}
