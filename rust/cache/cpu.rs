// SPDX-License-Identifier: GPL-2.0

//! One CPU's named values: which it has, their snapshot, and samples of its frequency.

use super::{
    energy,
    shared_by,
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
        errno::enodata,
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
            Scope,
            Source,
            APERF,
            ENTRIES,
            MPERF, //
        },
        energy::Unit,
        frequency::{
            is_window,
            rate,
            window,
            Rate,
            Sample, //
        },
        freshness::Freshness,
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// How many earlier samples are kept, to find one that is a suitable window ago.
const SAMPLES: usize = 4;

/// How often to wait for a window: reading may take longer each time than the time before.
const WINDOW_TRIES: usize = 3;

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
                let (package, core) = shared_by(cpu);
                let shared_by = match source.scope.unwrap_or(entry.scope) {
                    Scope::Package => package,
                    Scope::Core | Scope::Thread => core,
                };
                let reg = source.reg;
                live.energy = Some((energy::Id { reg, shared_by }, unit));
            }
            Decode::Frequency | Decode::FrequencyError | Decode::Residency => {
                probe(APERF)?;
                probe(MPERF)?;
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
            } else if found.decode != Decode::Tsc && !ops.iter().any(|op| op.reg == found.reg) {
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
        self.freshen(values)?;
        if class == Class::Window {
            self.widen(values)?;
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
            },
        )?;
        let now = task::now_ms();
        self.snapshot.renew(now);
        values.engine.stats.add(Counter::Refreshes, 1);
        match (span, self.ops.first()) {
            (Some((first, end)), _) => {
                self.tsc = Ok(first);
                self.sample(values, end);
            }
            (None, Some(op)) => self.tsc = op.value().map(|_| op.tsc),
            (None, None) => self.tsc = Err(enodata()),
        }
        let mut energy = values.energy.lock();
        for live in &self.live {
            let Some((id, _)) = live.energy else {
                continue;
            };
            let op = self.ops.iter().find(|op| op.reg == live.reg);
            if let Some(Ok(counter)) = op.map(Op::value) {
                energy.update(id, counter as u32, now);
            }
        }
        Ok(())
    }

    /// Takes in a sample of the frequency, whose last counter was read when the TSC was `end`.
    fn sample(&mut self, values: &Values, end: u64) {
        let [.., aperf_op, mperf_op] = &*self.ops else {
            return;
        };
        let (Ok(aperf), Ok(mperf)) = (aperf_op.value(), mperf_op.value()) else {
            return;
        };
        if !self.has_perf {
            return;
        }
        let sample = Sample {
            tsc: aperf_op.tsc,
            aperf,
            mperf,
            read: end.wrapping_sub(aperf_op.tsc),
        };
        let khz = regs::tsc_khz();
        let longest = values.max_age_ms().saturating_mul(10);
        let longest = longest.saturating_mul(khz.into());
        let earlier = self.samples.iter();
        let old = earlier
            .filter(|old| old.tsc != 0)
            .find(|old| is_window(old, &sample, khz, longest));
        self.window_missing = old.is_none();
        if let Some(old) = old {
            let rate = rate(old, &sample, khz);
            self.permille = rate.permille;
            self.rate = rate.frequency.or(self.rate);
        }
        let mut newer = sample;
        for place in self.samples.iter_mut() {
            core::mem::swap(place, &mut newer);
        }
    }

    /// Sees to it that there is a window before the latest sample, by waiting for one.
    fn widen(&mut self, values: &Values) -> Result {
        let khz = u64::from(regs::tsc_khz()).max(1);
        for _ in 0..WINDOW_TRIES {
            if !self.window_missing || self.waited_for == self.snapshot.generation() {
                return Ok(());
            }
            let longest = self.samples.iter().map(|sample| sample.read).max();
            let cycles = window(longest.unwrap_or(0), khz as u32);
            fsleep(Delta::from_micros(
                (cycles / khz).saturating_mul(1000).min(1_000_000) as i64,
            ));
            self.refresh(values)?;
            values.engine.stats.add(Counter::Windows, 1);
        }
        if self.window_missing {
            self.waited_for = self.snapshot.generation();
        }
        Ok(())
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
            self.refresh(values)?;
            let op = self.ops.iter().find(|op| op.reg == id.reg);
            op.ok_or_else(enodata)?.value()?;
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
