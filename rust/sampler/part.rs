// SPDX-License-Identifier: GPL-2.0

//! One CPU's part of a sampler: what its timer does.

use super::Common;
#[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
use crate::kapi::call_group::longest;
use crate::{
    engine::ReadRegister,
    kapi::{
        claim::Claimed,
        cpu_timer::{
            tick_ns,
            Expire,
            Precision, //
        },
        errno::enodata,
        regs, task,
        uapi::{
            Op,
            OpResult,
            Slot, //
        },
    },
    logic::{
        policy::Throttle,
        round::{
            SamplerStretch,
            MAX_US, //
        },
        sampling::{
            schedule::Schedule,
            slot,
            watch::{
                Condition,
                Reading, //
            },
        },
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    transmute::AsBytes, //
};

/// Time between rounds of one sample, for what else wants the CPU.
const GAP_NS: u64 = 100_000;

/// How long those wait, group by group, that are put off in an interrupt: for a group's work, and for what
/// else wants the CPU then.
const PUT_OFF_NS: u64 = GAP_NS + MAX_US as u64 * 1000;

/// What an expiry is taken to cost besides the reading.
const EXPIRY_NS: u64 = 1_000;

/// What a sampler may use at once, in the time that it would take at the rate that is allowed.
const BURST_NS: u64 = 100_000_000;

/// In a slot, what does not change: the sequence count and the CPU's number.
const FIXED: usize = size_of::<u64>();

/// A register that is sampled.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// With the last answer, or what it was refused with.
    pub(super) op: Op,
    /// It may be read.
    admitted: bool,
    /// It is not in the past either.
    wiped: bool,
    /// It is being taken away.
    taken: bool,
}

impl Entry {
    /// A register that may be read if its operation waits for an answer.
    pub(super) fn new(op: Op) -> Self {
        Self {
            op,
            admitted: op.is_awaiting_answer(),
            // What was never read is not in the past.
            wiped: !op.is_awaiting_answer(),
            taken: false,
        }
    }
}

/// What changes.
pub(super) struct State {
    pub(super) entries: KVVec<Entry>,
    /// What makes a sample matter.
    pub(super) conditions: KVVec<Condition>,
    /// There are conditions, if on other CPUs; else every sample matters.
    pub(super) watching: bool,
    /// The timer has been started, and goes on.
    pub(super) running: bool,
    /// The sampler has ended.
    pub(super) ended: bool,
    schedule: Schedule,
    /// How many entries of the sample in progress are through.
    done: usize,
    /// The sample in progress, or the next, has waited for other timers of this CPU already.
    has_waited: bool,
    /// When it was begun.
    tsc: u64,
    time_ns: u64,
    /// Of the last sample.
    number: u64,
    missed: u64,
    skipped: u64,
    busy: u64,
    /// Until when the time that was used would last.
    until: u64,
}

impl State {
    /// Whether any register may be read.
    pub(super) fn is_any_admitted(&self) -> bool {
        self.entries.iter().any(|entry| entry.admitted)
    }

    /// The status of a slot without a sample, when `otherwise` is why.
    fn status(&self, otherwise: Error) -> i32 {
        match self.entries.first() {
            Some(entry) if !self.is_any_admitted() => entry.op.status,
            _ => otherwise.to_errno(),
        }
    }
}

/// One CPU's part.
pub(super) struct Part {
    pub(super) common: Arc<Common>,
    pub(super) cpu: u32,
    /// Place among the sampler's slots.
    index: u32,
    pub(super) state: Claimed<State>,
    /// To be started by the timer, because the part was claimed when it should have been.
    start_later: Atomic<bool>,
}

impl Part {
    /// A part that has not begun.
    pub(super) fn new(
        common: Arc<Common>,
        index: u32,
        cpu: u32,
        entries: KVVec<Entry>,
    ) -> Result<Self> {
        let state = State {
            entries,
            conditions: KVVec::new(),
            watching: false,
            running: false,
            ended: false,
            schedule: Schedule::new(common.interval_ns, 0),
            done: 0,
            has_waited: false,
            tsc: 0,
            time_ns: 0,
            number: 0,
            missed: 0,
            skipped: 0,
            busy: 0,
            until: 0,
        };
        common.access.opener().count_sampler(cpu, true);
        let part = Self {
            common,
            cpu,
            index,
            state: Claimed::new(state),
            start_later: Atomic::new(false),
        };
        let map = part.common.map;
        let results = part
            .state
            .try_claim()
            .map_or(0, |state| state.entries.len());
        let empty = Slot {
            cpu,
            status: enodata().to_errno(),
            nr_results: results as u32,
            ..pin_init::zeroed()
        };
        for number in 0..u64::from(map.ring_samples) {
            if let Some(past) = map.past(index, number) {
                part.common.pages.write(past as usize, &empty)?;
            }
            if number % 1024 == 0 {
                task::cond_resched();
            }
        }
        part.common.pages.write(map.slot(index) as usize, &empty)?;
        if let Some(mut state) = part.state.try_claim() {
            part.clear(&mut state, enodata());
        }
        Ok(part)
    }

    /// Whether the part can be started, asked on the CPU that it would run on, with interrupts off.
    pub(super) fn may_start(&self, state: &State) -> bool {
        regs::current_cpu() == self.cpu
            && self.common.samplers.is_present(self.cpu)
            && !state.running
            && !state.ended
            && state.is_any_admitted()
    }

    /// Leaves the start to the timer, where [`Self::may_start`] cannot be asked because the part is
    /// claimed. Returns when that is to expire, if it is to.
    pub(super) fn start_later(&self) -> Option<u64> {
        if regs::current_cpu() != self.cpu || !self.common.samplers.is_present(self.cpu) {
            return None;
        }
        self.start_later.store(true, Relaxed);
        Some(task::monotonic_ns().saturating_add(GAP_NS))
    }

    /// Begins sampling now, after what others have done without a break. On this CPU, with interrupts off.
    /// Returns when to go on.
    pub(super) fn begin(&self, state: &mut State, stretch: &mut SamplerStretch) -> Option<u64> {
        let now = task::monotonic_ns();
        state.running = true;
        state.done = 0;
        // The first sample is not put off.
        state.has_waited = true;
        state.schedule = Schedule::new(self.common.interval_ns, now);
        self.advance(state, now, stretch)
    }

    /// The timer has expired, on this CPU. Returns when to go on, if at all.
    fn expired(&self, state: &mut State, now: u64, stretch: &mut SamplerStretch) -> Option<u64> {
        if self.start_later.load(Relaxed) {
            self.start_later.store(false, Relaxed);
            if self.may_start(state) {
                return self.begin(state, stretch);
            }
            if state.running && state.done == 0 {
                // Somebody else has started it.
                return Some(state.schedule.next());
            }
        }
        if !state.running {
            return None;
        }
        self.advance(state, now, stretch)
    }

    /// Does what is due, with interrupts off. Returns when to go on, if at all.
    fn advance(&self, state: &mut State, now: u64, stretch: &mut SamplerStretch) -> Option<u64> {
        if state.done == 0 {
            if let Some(until) = self.exhausted_until(state, now) {
                self.pass(state, now);
                state.has_waited = false;
                self.skip(state, until);
                return Some(state.schedule.next());
            }
        }
        let tsc = regs::rdtsc();
        let mut own = SamplerStretch::new(tsc);
        let stretch = if state.has_waited && self.common.precision == Precision::Deferrable {
            // It has waited for a tick; interrupts come on after it.
            &mut own
        } else {
            stretch
        };
        if !state.has_waited && !stretch.open(self.common.engine.bound(), tsc) {
            // Others have kept this CPU busy for long enough. Once for a sample: then it is their turn to wait.
            state.has_waited = true;
            self.charge_look(state, 0);
            return Some(now.saturating_add(self.put_off(stretch)));
        }
        stretch.serve();
        if state.done == 0 {
            self.pass(state, now);
            state.time_ns = now;
        }
        if !self.read_round(state, stretch) {
            return Some(task::monotonic_ns().saturating_add(GAP_NS));
        }
        state.has_waited = false;
        if !state.running {
            return None;
        }
        self.publish(state);
        Some(state.schedule.next())
    }

    /// For how long to wait for others.
    fn put_off(&self, stretch: &mut SamplerStretch) -> u64 {
        // Looking at those that are put off takes time too, and the first of them should not come again in
        // the same interrupt.
        let looks = EXPIRY_NS.saturating_mul(stretch.waiting.into());
        let each = match self.common.precision {
            Precision::Exact => PUT_OFF_NS,
            Precision::Deferrable => tick_ns(),
        };
        each.saturating_mul(stretch.put_off().into())
            .saturating_add(looks)
    }

    /// A sample is due.
    fn pass(&self, state: &mut State, now: u64) {
        let missed = state.schedule.pass(now);
        state.missed = state.missed.saturating_add(missed);
    }

    /// Until when nothing may be read, because too much of the CPU's time has been used.
    fn exhausted_until(&self, state: &State, now: u64) -> Option<u64> {
        let own = self.throttle().wait_ns(state.until, now);
        let user = self.common.access.user();
        let users = user.map_or(0, |user| user.sampler_wait_ns(self.cpu, EXPIRY_NS));
        match own.max(users) {
            0 => None,
            wait => Some(now.saturating_add(wait)),
        }
    }

    fn throttle(&self) -> Throttle {
        Throttle {
            permille: self.common.samplers.permille(),
            burst_ns: BURST_NS,
        }
    }

    fn skip(&self, state: &mut State, until: u64) {
        let mut skipped = 1;
        if until >= state.schedule.next() {
            skipped = state.schedule.pass(until).saturating_add(2);
        }
        state.skipped = state.skipped.saturating_add(skipped);
        let stats = &self.common.engine.stats;
        stats.add(Counter::SkippedSamples, skipped);
    }

    /// Reads as many registers as one round allows, at least one. Returns whether that was all.
    fn read_round(&self, state: &mut State, stretch: &SamplerStretch) -> bool {
        let bound = self.common.engine.bound();
        let isolated = task::is_isolated(self.cpu);
        let mut taken = false;
        let mut performed = 0u32;
        let start = regs::rdtsc_ordered();
        if state.done == 0 {
            state.tsc = start;
        }
        for entry in state.entries.iter_mut().skip(state.done) {
            if performed > 0 && !stretch.open_in(start, bound, regs::rdtsc()) {
                break;
            }
            if isolated && entry.admitted && self.common.access.check_isolation(&entry.op).is_err()
            {
                // It was not when the sampler was made.
                entry.admitted = false;
                entry.op.refuse(EPERM);
                taken = true;
            }
            if entry.admitted {
                ReadRegister::perform_here(&mut entry.op);
                performed = performed.wrapping_add(1);
            }
            state.done = state.done.wrapping_add(1);
        }
        let cycles = regs::rdtsc_ordered().wrapping_sub(start);
        #[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
        longest::note(performed, cycles);
        self.charge(state, cycles, performed);
        if taken && !state.is_any_admitted() {
            self.clear(state, EPERM);
        }
        let all = state.done >= state.entries.len();
        if all {
            state.done = 0;
        }
        all
    }

    fn charge(&self, state: &mut State, cycles: u64, performed: u32) {
        state.busy = state.busy.saturating_add(cycles);
        if let Some(user) = self.common.access.user() {
            user.charge_call(self.cpu, performed, 0);
        }
        self.charge_look(state, regs::cycles_to_ns(cycles));
    }

    /// Charges an expiry, and `ns` besides.
    fn charge_look(&self, state: &mut State, ns: u64) {
        let ns = ns.saturating_add(EXPIRY_NS);
        state.until = self
            .throttle()
            .charge(state.until, task::monotonic_ns(), ns);
        if let Some(user) = self.common.access.user() {
            user.charge(self.cpu, ns);
        }
    }

    /// Shows a sample that is complete, and tells those who wait for it.
    fn publish(&self, state: &mut State) {
        state.number = state.number.wrapping_add(1);
        let header = Slot {
            status: 0,
            number: state.number,
            tsc: state.tsc,
            time_ns: state.time_ns,
            ..self.header(state)
        };
        let map = self.common.map;
        self.store(map.slot(self.index), &header, state);
        if let Some(past) = map.past(self.index, state.number) {
            self.store(past, &header, state);
        }
        self.common.engine.stats.add(Counter::Samples, 1);

        let mut matters = !state.watching;
        for condition in &mut state.conditions {
            if let Some(entry) = state.entries.get(condition.result as usize) {
                let (status, value) = entry.op.reading();
                matters |= condition.look(Reading { status, value });
            }
        }
        if matters {
            self.common.events.add();
        }
    }

    fn header(&self, state: &State) -> Slot {
        Slot {
            nr_results: state.entries.len() as u32,
            missed: state.missed,
            skipped: state.skipped,
            busy: state.busy,
            ..pin_init::zeroed()
        }
    }

    fn store(&self, offset: u64, header: &Slot, state: &State) {
        let offset = offset as usize;
        let Ok(sequence) = self.common.pages.sequence(offset) else {
            return;
        };
        slot::write(&sequence, || {
            let header = header.as_bytes().get(FIXED..).unwrap_or(&[]);
            self.write(offset.wrapping_add(FIXED), header);
            for (i, entry) in state.entries.iter().enumerate() {
                self.write(result_at(offset, i), entry.op.result().as_bytes());
            }
        });
    }

    /// Within the mapping, which was made for all that is written.
    fn write(&self, offset: usize, bytes: &[u8]) {
        let written = self.common.pages.write_bytes(offset, bytes);
        debug_assert!(written.is_ok());
    }

    /// Ends sampling, zeroes the slot's values, and has it say why. The past stays.
    pub(super) fn clear(&self, state: &mut State, why: Error) {
        state.running = false;
        state.done = 0;
        for entry in state.entries.iter_mut().filter(|entry| entry.admitted) {
            entry.op.refuse(why);
        }
        let header = Slot {
            status: state.status(why),
            ..self.header(state)
        };
        self.store(self.common.map.slot(self.index), &header, state);
        if why != enodata() {
            self.common.events.add();
        }
    }

    /// Takes registers away for good, from the past too: those that `check` has something against.
    /// Returns the last reason, if there is any.
    pub(super) fn take_away(
        &self,
        state: &mut State,
        check: impl Fn(&Op) -> Result,
    ) -> Option<Error> {
        let mut why = None;
        for entry in &mut state.entries {
            entry.taken = false;
            if entry.wiped {
                continue;
            }
            let mut op = entry.op;
            op.reserved = 0;
            if let Err(error) = check(&op) {
                entry.admitted = false;
                entry.wiped = true;
                entry.taken = true;
                entry.op.refuse(error);
                why = Some(error);
            }
        }
        why?;
        let map = self.common.map;
        self.wipe(map.slot(self.index), state);
        for number in 0..u64::from(map.ring_samples) {
            if let Some(past) = map.past(self.index, number) {
                self.wipe(past, state);
            }
            if number % 1024 == 0 {
                task::cond_resched();
            }
        }
        why
    }

    /// Has a slot say of the registers that were just taken away that they were.
    fn wipe(&self, offset: u64, state: &State) {
        let offset = offset as usize;
        if let Ok(sequence) = self.common.pages.sequence(offset) {
            slot::write(&sequence, || {
                for (i, entry) in state.entries.iter().enumerate() {
                    if entry.taken {
                        self.write(result_at(offset, i), entry.op.result().as_bytes());
                    }
                }
            });
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.common.access.opener().count_sampler(self.cpu, false);
    }
}

/// Where a result of a slot is.
fn result_at(slot: usize, index: usize) -> usize {
    let before = index.wrapping_mul(size_of::<OpResult>());
    slot.wrapping_add(size_of::<Slot>()).wrapping_add(before)
}

impl Expire for Part {
    fn expire(&self, number: u64) -> Option<u64> {
        let now = task::monotonic_ns();
        let Some(mut state) = self.state.try_claim() else {
            // Somebody changes the sampler: this sample is missed, and counted by the next. A first one
            // is taken soon.
            let late = self.start_later.load(Relaxed);
            let wait = if late {
                GAP_NS
            } else {
                self.common.interval_ns
            };
            return Some(now.saturating_add(wait));
        };
        if regs::current_cpu() != self.cpu {
            // The CPU has gone, and the timer has moved.
            self.start_later.store(false, Relaxed);
            if state.running {
                self.clear(&mut state, ENXIO);
            }
            return None;
        }
        let common = &*self.common;
        let (samplers, precision) = (&common.samplers, common.precision);
        let mut stretch = samplers.stretch(self.cpu, precision, number, regs::rdtsc());
        let next = self.expired(&mut state, now, &mut stretch);
        samplers.hand_on(self.cpu, precision, number, stretch);
        next
    }
}
