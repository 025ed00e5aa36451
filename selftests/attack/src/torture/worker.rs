// SPDX-License-Identifier: GPL-2.0

//! Who does everything that can be done with the module, in random order, until it is told to stop or
//! killed.

use std::collections::BTreeMap;
use std::fs;

use cpupeek_selftests::device::{uapi, Device, PATH};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno, Pages};
use cpupeek_selftests::util::Random;

use super::board::{Board, Count};
use crate::calls::{self, cpu_word, Scene, World};
use crate::image::Image;

pub struct Worker<'a> {
    number: usize,
    board: &'a Board,
    random: Random,
    cpus: &'a [u32],
    root: bool,
    world: World,
    seen: BTreeMap<String, u64>,
}

/// What workers do, and how often relative to the others. A new thing to do is one more item.
/// Something to do.
type Action = fn(&mut Worker<'_>);

const ACTIONS: &[(u64, Action)] = &[
    (120, |worker| worker.command()),
    (6, |worker| worker.open_again()),
    (6, |worker| worker.mapped_run()),
    (6, |worker| worker.value()),
    (4, |worker| worker.counters()),
    (3, |worker| worker.setting()),
    (4, |worker| worker.affinity()),
    (3, |worker| worker.cpu_word()),
];

impl<'a> Worker<'a> {
    /// Works until it is told to stop. `root` has all rights, and others are users.
    pub fn work(number: usize, board: &'a Board, seed: u64, cpus: &'a [u32]) {
        let mut random = Random::new(seed);
        let root = number % 2 == 0;
        if !root {
            sys::become_user(1000 + number as u32 % 3);
        }
        let mut worker = Self {
            number,
            board,
            cpus,
            root,
            world: World::new(cpus),
            seen: BTreeMap::new(),
            random: Random::new(random.next()),
        };
        let all: u64 = ACTIONS.iter().map(|(weight, _)| weight).sum();
        while !board.is_stopped() {
            let mut choice = worker.random.below(all);
            for (weight, action) in ACTIONS {
                if choice < *weight {
                    action(&mut worker);
                    break;
                }
                choice -= weight;
            }
            worker.add(Count::Actions, 1);
        }
    }

    fn add(&self, count: Count, n: u64) {
        self.board.add(self.number, count, n);
    }

    fn count_answers(&self) {
        for (status, n) in calls::take_tally() {
            let count = match status {
                0 | libc::EIO => Count::Answered,
                libc::EACCES => Count::RefusedRegisters,
                libc::EPERM => Count::RefusedCpus,
                libc::ENXIO => Count::Losses,
                libc::ETIME => Count::Timeouts,
                other => panic!("status {:?}", Errno(other)),
            };
            self.add(count, n);
        }
    }

    fn command(&mut self) {
        let call = calls::nth(self.random.below(calls::count() as u64) as usize);
        if call.lasting && self.random.below(4) != 0 {
            return;
        }
        let mut scene = Scene {
            cpus: self.cpus,
            random: Random::new(self.random.next()),
            strict: false,
        };
        let mut image = Image::new(None);
        (call.fill)(&mut image, &mut scene);
        image.seal();
        let ops = (call.ops)(&image);
        self.add(Count::Begun, ops);
        let result = self.world.run(call, &image);
        calls::take_tally();
        match result {
            Ok(()) => (call.check)(&image, &self.world, &scene),
            Err(Errno(libc::EPERM)) if call.privileged => {}
            Err(error) => panic!("{}: {error:?}", call.name),
        }
        self.count_answers();
        self.add(Count::Ended, ops);
        if call.lasting {
            self.open_again();
        }
    }

    fn open_again(&mut self) {
        self.world = World::new(self.cpus);
    }

    fn mapped_run(&mut self) {
        let fd = self.world.fd(calls::On::Plan);
        let pages = Pages::map(fd, 1, libc::PROT_READ).expect("a plan can be mapped");
        let ops = self.world.ops.len() as u64;
        self.add(Count::Begun, ops);
        assert_eq!(self.world.run_mapped(), Ok(()));
        calls::take_tally();
        self.world.check_mapped(&pages);
        self.count_answers();
        self.add(Count::Ended, ops);
    }

    /// Reads a named value of some CPU, which may be gone by then.
    fn value(&mut self) {
        let cpu = self.random.choose(self.cpus);
        let Ok(entries) = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek")) else {
            return;
        };
        let files: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        if files.is_empty() {
            return;
        }
        self.add(Count::Values, 1);
        let path = &files[self.random.below(files.len() as u64) as usize];
        match fs::read_to_string(path) {
            Ok(text) => assert!(
                text.trim_end().parse::<i128>().is_ok(),
                "{path:?}: {text:?}"
            ),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let plausible = [
                    libc::ENODATA,
                    libc::ENODEV,
                    libc::ENOENT,
                    libc::ENXIO,
                    libc::ETIME,
                    libc::EIO,
                    libc::EACCES,
                ];
                assert!(plausible.contains(&errno), "{path:?}: {error}");
            }
        }
    }

    /// What the module counts never becomes less.
    fn counters(&mut self) {
        for name in super::COUNTERS {
            let now = guest::attribute(name);
            let before = self.seen.insert((*name).to_owned(), now);
            assert!(before.unwrap_or(0) <= now, "{name} has gone back");
        }
    }

    fn setting(&mut self) {
        let (name, values) = self.random.choose(&[
            ("spin_max_us", [0, 10, 100, 10_000]),
            ("spin_min_us", [0, 0, 1, 50]),
            ("cache_ms", [100, 100, 1000, 5000]),
            ("read_timeout_ms", [1, 20, 1000, 1000]),
            ("unprivileged_permille", [50, 500, 1000, 1000]),
            ("energy_hold_s", [0, 1, 10, 3600]),
        ]);
        let value = self.random.choose::<u64>(&values);
        let result = guest::write(guest::attribute_path(name), &value.to_string());
        let expected = if self.root {
            Ok(())
        } else {
            Err(Errno(libc::EACCES))
        };
        assert_eq!(result, expected, "{name}");
    }

    /// Has its CPU's number kept in its memory while it moves.
    fn cpu_word(&mut self) {
        let word = Pages::new(1, false);
        let header = uapi::cpupeek_cpu_word {
            size: size_of::<uapi::cpupeek_cpu_word>() as u32,
            flags: 0,
            address: word.address(0) as u64,
        };
        let set = (&raw const header).expose_provenance();
        assert_eq!(self.world.device.ioctl(cpu_word::SET, set), Ok(()));
        for _ in 0..1 + self.random.below(4) {
            self.affinity();
            // The thread may move between the two looks, but not every time.
            let is_right = || {
                // SAFETY: Has no preconditions.
                let cpu = unsafe { libc::sched_getcpu() };
                word.read::<u32>(0) == cpu as u32
            };
            assert!((0..1000).any(|_| is_right()), "{}", word.read::<u32>(0));
        }
        assert_eq!(self.world.device.ioctl(cpu_word::CLEAR, 0), Ok(()));
        assert_eq!(word.read::<u32>(0), uapi::CPUPEEK_CONST_NO_CPU);
    }

    /// Moves to other CPUs, of which some may be gone, or not allowed.
    fn affinity(&mut self) {
        let mut cpus = self.cpus.to_vec();
        cpus.retain(|_| self.random.below(2) == 0);
        let _ = sys::pin(&cpus);
        if self.random.below(2) == 0 {
            let _ = sys::pin(self.cpus);
        }
    }
}

/// Lets everybody open the node.
pub fn open_to_all() {
    sys::set_mode(PATH, 0o666);
    drop(Device::open());
}
