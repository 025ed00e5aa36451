// SPDX-License-Identifier: GPL-2.0
//! The described machine at work: answers the MSR exits of each virtual CPU.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::control::{self, Request, ALL_CPUS, BASE, MAGIC};
use crate::cpuid::Rule;
use crate::description::{Cpu, Description};
use crate::filter::{clusters, Cluster};
use crate::kvm::{Run, EXIT_FILTER, EXIT_RDMSR, EXIT_WRMSR, FILTER_READ, FILTER_WRITE};

/// A machine that runs.
pub struct Machine {
    start: Instant,
    burst: Duration,
    cpus: Vec<Mutex<State>>,
    /// Where the report goes.
    pub report: Option<std::path::PathBuf>,
}

/// Accesses by register, and whether they were writes.
pub type Counts = BTreeMap<(u32, bool), u64>;

#[derive(Default)]
struct State {
    cpu: Cpu,
    selected: Option<(u32, u32)>,
    unknown: Counts,
    burst: Burst,
}

/// Registers that are read at one instant.
#[derive(Default)]
struct Burst {
    at: Duration,
    read: Vec<u32>,
}

/// What became of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value is in the run page, or the fault.
    Done,
    /// It is no MSR exit, or one that QEMU asked for itself.
    NotOurs,
}

impl Machine {
    /// A machine as described, switched on now.
    pub fn new(description: Description) -> Self {
        let state = |cpu| {
            Mutex::new(State {
                cpu,
                ..State::default()
            })
        };
        Self {
            start: Instant::now(),
            burst: description.burst,
            cpus: description.cpus.into_iter().map(state).collect(),
            report: description.report,
        }
    }

    /// What is changed in the CPUID leaves of the CPU `id`.
    pub fn rules(&self, id: usize) -> Vec<Rule> {
        self.state(id)
            .map(|s| s.cpu.rules.clone())
            .unwrap_or_default()
    }

    /// The registers that KVM must leave to us even if it knows them.
    pub fn clusters(&self) -> Vec<Cluster> {
        let mut read = std::collections::BTreeSet::new();
        let mut written = read.clone();
        for id in 0..self.cpus.len() {
            let Some(state) = self.state(id) else {
                continue;
            };
            for (index, register) in &state.cpu.registers {
                read.insert(*index);
                if register.writable {
                    written.insert(*index);
                }
            }
        }
        let mut all = clusters(FILTER_READ, read);
        all.extend(clusters(FILTER_WRITE, written));
        all
    }

    /// Answers the exit in `run`, if it is ours.
    pub fn answer(&self, id: usize, run: &mut Run) -> Answer {
        let (index, filtered) = (run.index, u64::from(run.reason) & EXIT_FILTER != 0);
        let value = match run.exit_reason {
            EXIT_RDMSR => self.read(id, index, filtered),
            EXIT_WRMSR => self
                .write(id, index, run.data, filtered)
                .map(|ok| ok.then_some(0)),
            _ => None,
        };
        let Some(value) = value else {
            return Answer::NotOurs;
        };
        run.error = u8::from(value.is_none());
        if run.exit_reason == EXIT_RDMSR {
            run.data = value.unwrap_or(0);
        }
        Answer::Done
    }

    /// `None`: not ours. `Some(None)`: #GP.
    fn read(&self, id: usize, index: u32, filtered: bool) -> Option<Option<u64>> {
        if index == BASE {
            return Some(Some(MAGIC));
        }
        if control::is_read_count(index) {
            return Some(self.reads_of_selected(id));
        }
        let mut state = self.state(id)?;
        let Some(register) = state.cpu.registers.get_mut(&index) else {
            return state.count_unknown(index, false, filtered).then_some(None);
        };
        let delay = register.delay();
        if !delay.is_zero() {
            drop(state);
            wait(delay);
            state = self.state(id)?;
        }
        let now = state.burst.instant(index, self.start.elapsed(), self.burst);
        let register = state.cpu.registers.get_mut(&index)?;
        Some(register.value(now))
    }

    /// `None`: not ours. `Some(false)`: #GP.
    fn write(&self, id: usize, index: u32, value: u64, filtered: bool) -> Option<bool> {
        match control::request(index, value) {
            Some(Request::Select(register, cpu)) => {
                let known = self.for_each(cpu, |state| state.cpu.registers.contains_key(&register));
                let known = known.into_iter().any(|known| known);
                self.state(id)?.selected = known.then_some((register, cpu));
                return Some(known);
            }
            Some(Request::Change(change)) => {
                let selected = self.state(id)?.selected;
                let Some((register, cpu)) = selected else {
                    return Some(false);
                };
                let now = self.start.elapsed();
                self.for_each(cpu, |state| {
                    state.burst = Burst::default();
                    let found = state.cpu.registers.get_mut(&register);
                    found.map(|register| change.apply(register, now))
                });
                return Some(true);
            }
            None => {}
        }
        let mut state = self.state(id)?;
        match state.cpu.registers.get_mut(&index) {
            Some(register) => Some(register.write(value)),
            None => state.count_unknown(index, true, filtered).then_some(false),
        }
    }

    fn reads_of_selected(&self, id: usize) -> Option<u64> {
        let (register, cpu) = self.state(id)?.selected?;
        let reads = self.for_each(cpu, |state| {
            state.cpu.registers.get(&register).map(|r| r.reads)
        });
        Some(reads.into_iter().flatten().sum())
    }

    fn for_each<T>(&self, cpu: u32, mut f: impl FnMut(&mut State) -> T) -> Vec<T> {
        (0..self.cpus.len())
            .filter(|id| cpu == ALL_CPUS || *id == cpu as usize)
            .filter_map(|id| self.state(id))
            .map(|mut state| f(&mut state))
            .collect()
    }

    /// Each CPU's accesses: those of described registers, and of others.
    pub fn counts(&self) -> Vec<(Counts, Counts)> {
        self.for_each(ALL_CPUS, |state| {
            let mut described = Counts::new();
            for (index, register) in &state.cpu.registers {
                described.insert((*index, false), register.reads);
                described.insert((*index, true), register.writes);
            }
            described.retain(|_, count| *count != 0);
            (described, state.unknown.clone())
        })
    }

    fn state(&self, id: usize) -> Option<MutexGuard<'_, State>> {
        let state = self.cpus.get(id)?;
        Some(state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// Notes an access to a register that is not described. What QEMU filters, QEMU answers.
    fn count_unknown(&mut self, index: u32, write: bool, filtered: bool) -> bool {
        if !filtered {
            *self.unknown.entry((index, write)).or_default() += 1;
        }
        !filtered
    }
}

impl Burst {
    /// The instant at which the register `index` is read. An exit takes far longer than the instruction does on hardware;
    /// for `length` time stands still, so that registers read together belong together. One that is read again begins a
    /// new burst: a counter that stood still between two reads would be broken hardware.
    fn instant(&mut self, index: u32, now: Duration, length: Duration) -> Duration {
        if now.saturating_sub(self.at) >= length || self.read.contains(&index) {
            self.at = now;
            self.read.clear();
        }
        self.read.push(index);
        self.at
    }
}

fn wait(delay: Duration) {
    // The default slack of 50 us is as long as some of the delays.
    // SAFETY: prctl() with these arguments touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    thread::sleep(delay);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::parse;

    fn machine(text: &str) -> Machine {
        Machine::new(parse(text).unwrap())
    }

    fn run(exit_reason: u32, reason: u32, index: u32, data: u64) -> Run {
        Run {
            request_interrupt_window: 0,
            immediate_exit: 0,
            padding: [0; 6],
            exit_reason,
            ready_for_interrupt_injection: 0,
            if_flag: 0,
            flags: 0,
            cr8: 0,
            apic_base: 0,
            error: 0xff,
            pad: [0; 7],
            reason,
            index,
            data,
        }
    }

    fn read(machine: &Machine, id: usize, index: u32) -> Option<u64> {
        let mut page = run(EXIT_RDMSR, 2, index, 0xdead);
        assert_eq!(machine.answer(id, &mut page), Answer::Done);
        (page.error == 0).then_some(page.data)
    }

    fn write(machine: &Machine, id: usize, index: u32, value: u64) -> bool {
        let mut page = run(EXIT_WRMSR, 2, index, value);
        assert_eq!(machine.answer(id, &mut page), Answer::Done);
        page.error == 0
    }

    #[test]
    fn each_cpu_has_its_own() {
        let m = machine("cpus 2\nmsr 0 5 const 10\nmsr 1 5 const 11\nmsr 1 6 fault");
        assert_eq!(read(&m, 0, 5), Some(10));
        assert_eq!(read(&m, 1, 5), Some(11));
        assert_eq!(read(&m, 0, 6), None);
        assert_eq!(read(&m, 1, 6), None);
        assert!(!write(&m, 0, 5, 1));
        let counts = m.counts();
        assert_eq!(counts[0].0[&(5, false)], 1);
        assert_eq!(counts[0].1[&(6, false)], 1);
        assert_eq!(counts[1].0[&(6, false)], 1);
    }

    #[test]
    fn a_test_changes_the_machine() {
        let m = machine("cpus 2\nmsr 0 5 const 10\nmsr 1 5 const 11");
        assert_eq!(read(&m, 0, BASE), Some(MAGIC));
        assert!(!write(&m, 0, BASE + 2, 1), "nothing is selected");
        assert!(!write(&m, 0, BASE + 1, 0x77), "not described");
        assert!(write(&m, 0, BASE + 1, 1 << 32 | 5));
        assert!(write(&m, 0, BASE + 2, 99));
        assert_eq!((read(&m, 0, 5), read(&m, 1, 5)), (Some(10), Some(99)));
        assert_eq!(read(&m, 0, BASE + 6), Some(1));
        assert!(write(&m, 1, BASE + 1, u64::from(ALL_CPUS) << 32 | 5));
        assert!(write(&m, 1, BASE + 3, 0));
        assert_eq!((read(&m, 0, 5), read(&m, 1, 5)), (None, None));
        assert_eq!(read(&m, 1, BASE + 6), Some(4));
    }

    #[test]
    fn what_qemu_filters_is_left_to_it() {
        let m = machine("cpus 1\nmsr 0 5 const 10");
        let mut page = run(EXIT_RDMSR, EXIT_FILTER as u32, 0x35, 0);
        assert_eq!(m.answer(0, &mut page), Answer::NotOurs);
        let mut page = run(EXIT_RDMSR, EXIT_FILTER as u32, 5, 0);
        assert_eq!(m.answer(0, &mut page), Answer::Done);
        let mut page = run(2, 0, 5, 0);
        assert_eq!(m.answer(0, &mut page), Answer::NotOurs);
    }

    #[test]
    fn a_burst_is_one_instant() {
        let mut burst = Burst::default();
        let us = Duration::from_micros;
        assert_eq!(burst.instant(1, us(10), us(5)), us(10));
        assert_eq!(burst.instant(2, us(14), us(5)), us(10));
        assert_eq!(burst.instant(3, us(15), us(5)), us(15));
        assert_eq!(burst.instant(3, us(16), us(5)), us(16), "read again");
        assert_eq!(burst.instant(4, us(17), us(0)), us(17));
    }
}
