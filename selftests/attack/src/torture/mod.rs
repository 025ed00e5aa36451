// SPDX-License-Identifier: GPL-2.0

//! Torture: everything at once. Many processes do all that can be done, in random order, while they
//! are killed and stopped, CPUs go and come, hold their interrupts off, and the module is asked to go.
//! Between phases it is idle, and must have counted every operation once; then it is loaded anew.

mod board;
mod worker;

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cpupeek_selftests::device::Device;
use cpupeek_selftests::guest::{self, attribute, CGROUP};
use cpupeek_selftests::hold;
use cpupeek_selftests::sys::{self, Child, Errno, Exit};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use crate::tests;
use board::{Board, Count};
use worker::Worker;

tests! {
    "torture";
    everything_at_once: [Cpus Module],
}

/// What the module counts.
const COUNTERS: &[&str] = &[
    "calls",
    "ops",
    "interrupts",
    "local_ops",
    "rounds",
    "sleeps",
    "spins",
    "preempted",
    "timeouts",
    "losses",
    "refused_registers",
    "refused_cpus",
    "throttled",
    "allocations",
    "abandoned",
    "refreshes",
    "windows",
];

const WORKERS: usize = 12;

/// One stretch of work between two times of quiet.
struct Phase<'a> {
    random: Random,
    board: Board,
    cpus: &'a [u32],
    workers: Vec<(usize, Child)>,
    kills: u32,
    stops: u32,
    plugs: u32,
    holds: u32,
    busy: u32,
    held: Option<u32>,
    /// Whether workers are killed; then it is not known how many operations they came to.
    may_kill: bool,
}

impl Phase<'_> {
    fn start(&mut self, number: usize) {
        let seed = self.random.next();
        let child = sys::fork(|| {
            sys::die_with_parent();
            Worker::work(number, &self.board, seed, self.cpus);
        });
        self.workers.push((number, child));
    }

    fn some_worker(&mut self) -> usize {
        self.random.below(self.workers.len() as u64) as usize
    }

    fn kill(&mut self) {
        if !self.may_kill {
            return;
        }
        let index = self.some_worker();
        let (number, child) = self.workers.swap_remove(index);
        child.kill(libc::SIGKILL);
        child.kill(libc::SIGCONT);
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL), "worker {number}");
        self.kills += 1;
        self.start(number);
    }

    fn stop_one(&mut self) {
        let index = self.some_worker();
        let child = self.workers[index].1;
        child.kill(libc::SIGSTOP);
        sleep(Duration::from_millis(self.random.below(50)));
        child.kill(libc::SIGCONT);
        self.stops += 1;
    }

    fn plug(&mut self) {
        let cpu = self.random.choose(self.cpus);
        if self.held == Some(cpu) || !guest::can_go_offline(cpu) {
            return;
        }
        let online = guest::online();
        let result = guest::try_set_online(cpu, !online.contains(&cpu));
        assert!(
            [Ok(()), Err(Errno(libc::EBUSY))].contains(&result),
            "CPU {cpu}: {result:?}"
        );
        self.plugs += 1;
    }

    /// One CPU answers late for a while.
    fn hold(&mut self) {
        if !hold::is_loaded() {
            return;
        }
        if self.held.take().is_some() {
            hold::stop();
            return;
        }
        let cpu = self.random.choose(self.cpus);
        if cpu != 0 && guest::online().contains(&cpu) {
            let us = 500 + self.random.below(4000) as u32;
            hold::start(cpu, us, 2000);
            self.held = Some(cpu);
            self.holds += 1;
        }
    }

    /// The module is in use, and does not go, nor come twice.
    fn unload(&mut self) {
        let result = sys::unload_module(guest::MODULE);
        // EAGAIN is what the kernel says of a module whose users come and go as it looks.
        let in_use = [Err(Errno(libc::EBUSY)), Err(Errno(libc::EAGAIN))];
        assert!(in_use.contains(&result), "rmmod: {result:?}");
        self.busy += 1;
    }

    fn cpuset(&mut self) {
        let index = self.some_worker();
        let child = self.workers[index].1;
        let first = self.random.choose(self.cpus);
        let last = self.cpus[self.cpus.len() - 1];
        if Path::new(CGROUP).exists() {
            // A list that has no CPU online any more is refused, or falls back on all.
            let _ = guest::write(format!("{CGROUP}/cpuset.cpus"), &format!("{first}-{last}"));
            let there = if self.random.below(2) == 0 {
                CGROUP
            } else {
                "/sys/fs/cgroup"
            };
            let _ = guest::write(format!("{there}/cgroup.procs"), &child.0.to_string());
        }
    }

    /// Nobody has come to an end by itself.
    fn watch(&mut self) {
        for &(number, child) in &self.workers {
            if let Some(exit) = child.try_wait() {
                panic!("worker {number} has ended: {exit:?}");
            }
        }
    }

    fn run(&mut self, length: Duration) {
        const TROUBLE: &[fn(&mut Phase<'_>)] = &[
            |phase| phase.kill(),
            |phase| phase.kill(),
            |phase| phase.stop_one(),
            |phase| phase.plug(),
            |phase| phase.hold(),
            |phase| phase.unload(),
            |phase| phase.cpuset(),
        ];
        for number in 0..WORKERS {
            self.start(number);
        }
        let start = Instant::now();
        while start.elapsed() < length {
            let trouble = self.random.below(TROUBLE.len() as u64) as usize;
            TROUBLE[trouble](self);
            self.watch();
            sleep(Duration::from_millis(self.random.below(60)));
        }
        if self.held.take().is_some() {
            hold::stop();
        }
        self.board.stop();
        for (number, child) in std::mem::take(&mut self.workers) {
            child.kill(libc::SIGCONT);
            assert_eq!(child.wait(), Exit::Code(0), "worker {number}");
        }
        for cpu in guest::offline() {
            if self.cpus.contains(&cpu) {
                guest::set_online(cpu, true);
            }
        }
    }

    /// Every operation is accounted for once: in the module as in the workers' own count.
    fn settle(&self, before: &[u64]) {
        let changed = |name: &str| {
            let index = COUNTERS.iter().position(|counter| *counter == name);
            attribute(name) - before[index.expect("is in the table")]
        };
        let sum = |count| self.board.sum(count);
        println!(
            "{} actions, {} operations; {} kills, {} stops, {} CPUs gone or come, {} holds, {} rmmod; abandoned {}, timeouts {}, losses {}",
            sum(Count::Actions),
            sum(Count::Ended),
            self.kills,
            self.stops,
            self.plugs,
            self.holds,
            self.busy,
            changed("abandoned"),
            changed("timeouts"),
            changed("losses"),
        );
        assert!(sum(Count::Ended) > 0, "nothing was done");
        let ops = changed("ops");
        assert!(
            (sum(Count::Ended)..=sum(Count::Begun)).contains(&ops),
            "{ops} operations in the module"
        );
        let same = [
            ("refused_registers", Count::RefusedRegisters, true),
            ("refused_cpus", Count::RefusedCpus, true),
            // Refreshes of values may be late, or lose their CPU, too.
            ("losses", Count::Losses, sum(Count::Values) == 0),
            ("timeouts", Count::Timeouts, sum(Count::Values) == 0),
        ];
        for (name, count, exact) in same {
            let (told, counted) = (sum(count), changed(name));
            assert!(
                told <= counted,
                "{name}: {counted} in the module, {told} told"
            );
            if exact && self.kills == 0 {
                assert_eq!(counted, told, "{name}");
            }
        }
    }
}

fn make_cpuset() {
    let _ = guest::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
    let _ = fs::create_dir(CGROUP);
}

fn everything_at_once(env: &Env) {
    let start = Instant::now();
    let mut random = Random::new(env.seed);
    let cpus = guest::online();
    let length = (env.soak / 5).clamp(Duration::from_secs(3), Duration::from_secs(20));
    let mut phases = 0;
    println!("to see the same choices again: SEED={}", env.seed);
    while start.elapsed() < env.soak || phases < 2 {
        make_cpuset();
        worker::open_to_all();
        let before: Vec<u64> = COUNTERS.iter().map(|name| attribute(name)).collect();
        // It keeps the module from going.
        let device = Device::open();
        let mut phase = Phase {
            random: Random::new(random.next()),
            board: Board::new(WORKERS),
            cpus: &cpus,
            workers: Vec::new(),
            kills: 0,
            stops: 0,
            plugs: 0,
            holds: 0,
            busy: 0,
            held: None,
            may_kill: phases % 2 == 1,
        };
        phase.run(length);
        drop(device);
        guest::wait_until("nobody has the module", || guest::module_users() == 0);
        assert_eq!(attribute("cpu_words"), 0);
        phase.settle(&before);
        reload(env, &mut random);
        phases += 1;
    }
    println!("{phases} phases");
}

/// The module goes, and comes with other parameters.
fn reload(env: &Env, random: &mut Random) {
    assert_eq!(sys::unload_module(guest::MODULE), Ok(()), "rmmod");
    let spin = random.choose(&[0, 1, 100, 10_000]);
    let parameters = format!("spin_max_us={spin} unprivileged_permille=1000 cpu_word=1");
    let loaded = sys::load_module(&env.module, &parameters);
    assert_eq!(loaded, Ok(()), "insmod {parameters}");
    assert_eq!(attribute("spin_max_us"), spin);
    for name in COUNTERS {
        // Loading reads what the CPUs have.
        let counted_at_load = ["refreshes", "windows"];
        if !counted_at_load.contains(name) {
            assert_eq!(attribute(name), 0, "{name}");
        }
    }
}
